"""How numba compiles the kernels of this package: faster than by default, to the same machine code.

By default, numba optimises every function together with all functions that it calls, and generates its machine code. A
function four levels down is thus optimised five times, and nothing calls the machine code of the lower levels. Here a
function that only compiled code calls stays plain LLVM code, which the kernel includes; so do numba's own functions,
such as `np.empty` and `min`. While numba types a function it searches dozens of candidates for every `a + b`; here it
searches once for each pair of types. It loads its registries once, not for every function, and garbage collection is
off.
"""

import gc
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from numba import _dynfunc
from numba.core import types as numba_types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.registry import cpu_target
from numba.core.typed_passes import NativeLowering
from numba.core.typing.templates import _OverloadFunctionTemplate

# numba passes for constructs that most kernels do not contain: `with`, exceptions with arguments, array expressions,
# functions inlined before their types are known, and closures and comprehensions.
_UNUSED = {
    "LiteralPropagation", "Rewrite dynamic raises", "dump_parfor_diagnostics", "find_literally", "inline_closure_likes",
    "inline_inlinables", "literal_unroll", "make_function_op_code_to_jit_function", "nopython_rewrites", "with_lifting",
}  # fmt: skip
types: Any = numba_types
_OPERATORS = frozenset(value for value in vars(operator).values() if callable(value))


class _RememberingContext:
    """A typing context of numba that remembers the types of operators on numbers, and of elements of arrays."""

    _signatures: dict[Any, Any] = {}  # shared: numba's answer depends only on the types  # noqa: RUF012

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        resolve: Callable[..., Any] = self._context.resolve_function_type
        if kws or getattr(function, "typing_key", None) not in _OPERATORS:
            return resolve(function, args, kws)
        if not all(map(_is_number, args)):
            return resolve(function, args, kws)
        return self._remember((function, *args), resolve, function, args, kws)

    def resolve_getitem(self, target: Any, index: Any) -> Any:
        resolve = self._context.resolve_getitem
        if not (isinstance(target, types.Array) and _is_basic(index)):
            return resolve(target, index)
        return self._remember(("getitem", target, index), resolve, target, index)

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        resolve = self._context.resolve_setitem
        if not (isinstance(target, types.Array) and _is_basic(index) and _is_number(value)):
            return resolve(target, index, value)
        return self._remember(("setitem", target, index, value), resolve, target, index, value)

    def _remember(self, key: Any, resolve: Callable[..., Any], *arguments: Any) -> Any:
        if key not in self._signatures:
            self._signatures[key] = resolve(*arguments)
        return self._signatures[key]


def _is_number(kind: Any) -> bool:
    return isinstance(kind, types.Number | types.Boolean)


def _is_basic(index: Any) -> bool:
    """Whether an index consists of numbers and slices."""
    parts = index.types if isinstance(index, types.BaseTuple) else [index]
    return all(isinstance(part, types.Integer | types.SliceType) for part in parts)


class _IncludedLibrary(JITCodeLibrary):
    """LLVM code that is linked into kernels, and never run on its own."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def own_module(self) -> Any:
        """The code without that of the functions it calls, for `_link_all`."""
        return super()._get_module_for_linking()

    def _get_module_for_linking(self) -> Any:
        """The code with all functions it calls, for numba's own libraries."""
        module = self.own_module().clone()
        for library in _link_all(module, self._linking_libraries):
            module.link_in(library._get_module_for_linking(), preserve=True)
        return module


class _SeparateLibrary(_IncludedLibrary):
    """LLVM code that is linked into kernels as a separate function."""

    def add_ir_module(self, module: Any) -> None:
        """Forbid inlining while the code is text: llvmlite before 0.48 can set this only on return values later."""
        for function in module.functions:
            if not function.is_declaration:
                function.attributes.add("noinline")
        super().add_ir_module(module)


def _link_all(module: Any, libraries: list[JITCodeLibrary]) -> list[JITCodeLibrary]:
    """Link all included libraries that the given ones need into `module`, each once; returns the libraries left."""
    waiting, found = list(libraries), dict.fromkeys(libraries)
    while waiting:
        library = waiting.pop()
        if isinstance(library, _IncludedLibrary):
            module.link_in(library.own_module(), preserve=True)
            new = dict.fromkeys(other for other in library._linking_libraries if other not in found)
            waiting += new
            found |= new
    return [library for library in found if not isinstance(library, _IncludedLibrary)]


class _KernelLibrary(JITCodeLibrary):
    """Machine code of a kernel and of everything it includes."""

    _linking_libraries: list[JITCodeLibrary]
    rounds = 2

    def finalize(self) -> None:
        self._linking_libraries = _link_all(self._final_module, self._linking_libraries)
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Two rounds: the second makes vectorised loops up to a third faster, because the first has inlined them.

        numba has a cheap round before each. Without it, compiling takes less time and the code is faster.
        """
        for _ in range(self.rounds):
            manager = self._codegen._module_pass_manager()
            if isinstance(manager, tuple):
                passes, builder = manager
                passes.run(self._final_module, builder)
            else:  # other versions of numba
                super()._optimize_final_module()


class _LightLibrary(_KernelLibrary):
    """As `_KernelLibrary`, for code that gains nothing from the second round."""

    rounds = 1


@register_pass(mutates_CFG=True, analysis_only=False)
class _KernelLowering(NativeLowering):
    """Generate the machine code of a kernel."""

    _name = "kernel_lowering"
    library: type[_KernelLibrary] = _KernelLibrary

    def run_pass(self, state: Any) -> bool:
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _LightLowering(_KernelLowering):
    """As `_KernelLowering`, in one round."""

    _name = "light_lowering"
    library = _LightLibrary


@register_pass(mutates_CFG=True, analysis_only=False)
class _IncludedLowering(NativeLowering):
    """Generate the LLVM code of a function, but no machine code."""

    _name = "included_lowering"
    library: type[_IncludedLibrary] = _IncludedLibrary

    def run_pass(self, state: Any) -> bool:
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        name = lowered.fndesc.qualname.split(".")[-1]
        # numba's dispatcher wants a function: one without an address, as for all functions without a Python wrapper.
        stub = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (state.library,))
        state.targetctx.insert_user_function(stub, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=stub)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _SeparateLowering(_IncludedLowering):
    """As `_IncludedLowering`, for a function that LLVM must not inline."""

    _name = "separate_lowering"
    library = _SeparateLibrary


class _Compiler(CompilerBase):
    lowering: type[NativeLowering]
    left_out: frozenset[str] = frozenset(_UNUSED)

    def __init__(self, typingctx: Any, *arguments: Any) -> None:
        if not isinstance(typingctx, _RememberingContext):
            typingctx = _RememberingContext(typingctx)
        super().__init__(typingctx, *arguments)

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("kernel")
        nested = any(isinstance(constant, CodeType) for constant in self.state.func_id.code.co_consts)
        for step, description in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if nested or step._name not in self.left_out:
                passes.add_pass(self.lowering if step is NativeLowering else step, description)
        passes.finalize()
        return [passes]


class KernelCompiler(_Compiler):
    """Compile a function that Python calls, with all functions that it includes."""

    lowering = _KernelLowering

    def compile_extra(self, func: Any) -> Any:
        with global_compiler_lock, _without_garbage_collection(), _registries_loaded(), _functions_of_numba_included():
            return super().compile_extra(func)


class LightCompiler(KernelCompiler):
    """As `KernelCompiler`, in one round of optimisation."""

    lowering = _LightLowering


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Collecting would gain nothing: numba keeps nearly all that it creates."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def _registries_loaded() -> Iterator[None]:
    """Within this block, numba adds what is new in its registries but does not import them again."""
    contexts: list[Any] = [cpu_target.target_context, cpu_target.typing_context]
    for context in contexts:
        context.load_additional_registries = lambda context=context: _add_new(context)
    try:
        yield
    finally:
        for context in contexts:
            del context.load_additional_registries


def _add_new(context: Any) -> None:
    for registry in list(context._registries):
        context.install_registry(registry)


@contextmanager
def _functions_of_numba_included() -> Iterator[None]:
    """Within this block, `OverloadCompiler` compiles numba's own functions."""
    template: Any = _OverloadFunctionTemplate
    choose = template._get_jit_decorator
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": OverloadCompiler}
    template._get_jit_decorator = lambda self: lambda **given: choose(self)(**(options | given))
    try:
        yield
    finally:
        template._get_jit_decorator = choose


class IncludedCompiler(_Compiler):
    """Compile a function that only compiled code calls."""

    lowering = _IncludedLowering


class OverloadCompiler(IncludedCompiler):
    """As `IncludedCompiler`, for numba's own functions, which may contain anything."""

    left_out = frozenset()


class SeparateCompiler(_Compiler):
    """As `IncludedCompiler`, for a function that stays separate."""

    lowering = _SeparateLowering
