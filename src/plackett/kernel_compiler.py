"""How numba compiles the kernels of this package: faster than by default, to the same machine code.

By default, numba optimises every function together with all functions that it calls, and generates its machine code. A
function four levels down is thus optimised five times, and nothing calls the machine code of the lower levels. Here a
function that only compiled code calls stays plain LLVM code, which the kernel includes; so do numba's own functions,
such as `np.empty` and `min`. `kernel_lowering` generates less of that code. While numba types a function it searches
dozens of candidates for every `a + b`; here it searches once for each pair of types. It loads its registries once, not
for every function, finds the lifetimes of variables once, not after every pass, and garbage collection is off.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import CodeType
from typing import Any

from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import LoweringPass, PassManager, _pass_registry, register_pass
from numba.core.imputils import builtin_registry
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.registry import cpu_target
from numba.core.targetconfig import ConfigStack
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import IRLegalization, NativeLowering
from numba.core.types.functions import BaseFunction
from numba.core.typing.templates import _OverloadFunctionTemplate

from plackett.kernel_lowering import KernelLower, owns_memory

# numba passes for constructs that most kernels do not contain: `with`, exceptions with arguments, array expressions,
# functions inlined before their types are known, and closures and comprehensions.
_UNUSED = {
    "LiteralPropagation", "Rewrite dynamic raises", "dump_parfor_diagnostics", "find_literally", "inline_closure_likes",
    "inline_inlinables", "literal_unroll", "make_function_op_code_to_jit_function", "nopython_rewrites", "with_lifting",
}  # fmt: skip
# numba's answers, which depend only on the types.
_attributes: dict[Any, Any] = {}
_call_types: dict[Any, Any] = {}


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

    def _optimize_functions(self, ll_module: Any) -> None:
        """Only the final module is optimised."""
        ll_module.data_layout = self._codegen._data_layout

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


class _Lowering(NativeLowering):
    """Generate LLVM code."""

    @property
    def lowering_class(self) -> type[KernelLower]:
        return KernelLower


@register_pass(mutates_CFG=True, analysis_only=False)
class _Releases(IRLegalization):
    """Release memory after its last use, in functions that own any."""

    _name = "releases"

    def run_pass(self, state: Any) -> bool:
        if owns_memory(state):
            return bool(super().run_pass(state))
        state.targetctx = state.targetctx.subtarget(enable_nrt=False)
        return False


@register_pass(mutates_CFG=True, analysis_only=False)
class _KernelLowering(_Lowering):
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
class _IncludedLowering(_Lowering):
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


class _Passes(PassManager):
    """Runs passes without checks, events and timings, and without finding the lifetimes of variables after each."""

    def _runPass(self, index: int, pss: Any, internal_state: Any) -> None:  # noqa: ARG002, N802 - numba's names
        pss.analysis = self._analysis
        steps = (pss.run_initialization, pss.run_pass, pss.run_finalizer)
        changed = [step(internal_state) for step in steps]
        if any(changed) and not isinstance(pss, LoweringPass) and _pass_registry.get(type(pss)).mutates_CFG:
            internal_state.func_ir.blocks = canonicalize_cfg(internal_state.func_ir.blocks)


class _Compiler(CompilerBase):
    lowering: type[NativeLowering]
    left_out: frozenset[str] = frozenset(_UNUSED)

    def define_pipelines(self) -> list[PassManager]:
        passes, replaced = _Passes("kernel"), {NativeLowering: self.lowering, IRLegalization: _Releases}
        nested = any(isinstance(constant, CodeType) for constant in self.state.func_id.code.co_consts)
        for step, description in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if nested or step._name not in self.left_out:
                passes.add_pass(replaced.get(step, step), description)
        passes.finalize()
        return [passes]


class KernelCompiler(_Compiler):
    """Compile a function that Python calls, with all functions that it includes."""

    lowering = _KernelLowering

    def __init__(self, *arguments: Any) -> None:
        _load_registries()
        super().__init__(*arguments)

    def compile_extra(self, func: Any) -> Any:
        with ExitStack() as stack:
            stack.enter_context(global_compiler_lock)
            stack.enter_context(_without_garbage_collection())
            for context in (cpu_target.typing_context, cpu_target.target_context, self.state.targetctx):
                stack.enter_context(_replaced(context, "refresh", _refresh_if_grown(context)))
            context = cpu_target.typing_context
            stack.enter_context(_replaced(context, "resolve_getattr", _remember_attributes(context.resolve_getattr)))
            search = BaseFunction.get_call_type
            stack.enter_context(_replaced(BaseFunction, "get_call_type", _remember_call_types(search)))
            stack.enter_context(_replaced(PostProcessor, "run", _without_lifetimes(PostProcessor.run)))
            template: Any = _OverloadFunctionTemplate
            chosen = _with_overload_compiler(template._get_jit_decorator)
            stack.enter_context(_replaced(template, "_get_jit_decorator", chosen))
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
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Within this block, `owner` has another attribute `name`."""
    own = name in vars(owner)
    former = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, former) if own else delattr(owner, name)


def _load_registries() -> None:
    """Load the functions that numba can compile. While it types them, numba would load them again for each."""
    target: Any = cpu_target.target_context
    with global_compiler_lock:
        _import_without_blas()
        target.load_additional_registries()
        target.install_registry(builtin_registry)
        with _replaced(target, "refresh", lambda: None):
            cpu_target.typing_context.refresh()


def _import_without_blas() -> None:
    """Import numba's functions of arrays without scipy.linalg, which numba imports when it compiles a product."""
    with _replaced(import_module("numba.np.linalg"), "ensure_blas", lambda: None):
        import_module("numba.np.arraymath")


def _refresh_if_grown(context: Any) -> Callable[[], None]:
    """Look at the registries only if they have grown."""
    refresh, known = context.refresh, _size(context)

    def refresh_if_grown() -> None:
        nonlocal known
        if _size(context) != known:
            refresh()
            known = _size(context)

    return refresh_if_grown


def _size(context: Any) -> int:
    """How much the registries of a context hold."""
    loaders = context._registries.items()
    return sum(len(getattr(registry, name)) for registry, loader in loaders for name in loader.registry_items)


def _remember_attributes(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Search once for the type of an attribute, not at every use."""

    def resolve_getattr(kind: Any, attribute: str) -> Any:
        if (kind, attribute) not in _attributes:
            _attributes[kind, attribute] = resolve(kind, attribute)
        return _attributes[kind, attribute]

    return resolve_getattr


def _remember_call_types(search: Callable[..., Any]) -> Callable[..., Any]:
    """Search once for what a function returns for given types, not at every call."""

    def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws:
            return search(function, context, args, kws)
        key = (function, tuple(args), _fastmath())
        if key not in _call_types:
            _call_types[key] = search(function, context, args, kws)
        return _call_types[key]

    return get_call_type


def _fastmath() -> frozenset[str]:
    """Which rules of arithmetic are relaxed in the function being compiled, and in those of numba that it calls."""
    return frozenset(ConfigStack.top_or_none().fastmath.flags)


def _without_lifetimes(run: Callable[..., None]) -> Callable[..., None]:
    """Find the lifetimes of variables only to release what they name, not after every change."""

    def process(self: Any, emit_dels: bool = False, **options: Any) -> None:
        if emit_dels or self.func_ir.is_generator:
            return run(self, emit_dels, **options)
        self.func_ir.blocks = canonicalize_cfg(self.func_ir.blocks)
        self.func_ir.variable_lifetime = VariableLifetime(self.func_ir.blocks)
        return None

    return process


def _with_overload_compiler(choose: Callable[..., Any]) -> Callable[..., Any]:
    """Compile numba's own functions by `OverloadCompiler`."""
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": OverloadCompiler}
    return lambda template: lambda **given: choose(template)(**(options | given))


class IncludedCompiler(_Compiler):
    """Compile a function that only compiled code calls."""

    lowering = _IncludedLowering


class OverloadCompiler(IncludedCompiler):
    """As `IncludedCompiler`, for numba's own functions, which may contain anything."""

    left_out = frozenset()


class SeparateCompiler(_Compiler):
    """As `IncludedCompiler`, for a function that stays separate."""

    lowering = _SeparateLowering
