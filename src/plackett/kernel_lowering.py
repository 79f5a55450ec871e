"""How the kernels of this package become LLVM code: as numba does it, with less code on the way to the same result.

numba counts references to every array that a variable names, copies an array's description to memory for every element
that it reads, and stores zeros in every variable that it no longer needs. LLVM removes all this, which takes time.
"""

from typing import Any

from numba.core import cgutils, ir
from numba.core import types as numba_types
from numba.core.lowering import Lower

types: Any = numba_types


def owns_memory(state: Any) -> bool:
    """Whether a function creates or returns arrays, or uses lists. Any other only borrows arrays: nothing to count."""

    def has_memory(kind: Any) -> bool:
        return bool(state.targetctx.data_model_manager[kind].contains_nrt_meminfo())

    def is_view(expression: Any, signature: Any) -> bool:
        return getattr(expression, "op", None) in ("getitem", "static_getitem") and _is_basic(signature.args[1])

    arrays = types.Array | types.BaseTuple | types.Optional
    created = [
        signature.return_type
        for expression, signature in state.calltypes.items()
        if signature is not None and not is_view(expression, signature)
    ]
    others = [kind for kind in state.typemap.values() if not isinstance(kind, arrays)]
    return any(map(has_memory, {state.return_type, *created, *others}))


def _is_basic(index: Any) -> bool:
    """Whether an index consists of numbers and slices."""
    parts = index.types if isinstance(index, types.BaseTuple) else [index]
    return all(isinstance(part, types.Integer | types.SliceType) for part in parts)


class KernelLower(Lower):
    """Generate the LLVM code of a function."""

    def lower_block(self, block: Any) -> None:
        """As in numba, without preparing an error message for every instruction."""
        self.pre_block(block)
        for instruction in block.body:
            self.loc = instruction.loc
            self.lower_inst(instruction)
        self.post_block(block)

    def lower_inst(self, inst: Any) -> None:
        """As in numba, without the text of the instruction; only what counts references is deleted."""
        if isinstance(inst, ir.Del):
            if self._is_counted(inst.value):
                self.delvar(inst.value)
        elif isinstance(inst, ir.Assign) and not isinstance(inst.value, ir.Arg):
            name = inst.target.name
            self.storevar(self.lower_assign(self.typeof(name), inst), name)
        else:
            super().lower_inst(inst)

    def storevar(self, value: Any, name: str, argidx: Any = None) -> None:
        """As in numba, without loading the former value if it need not be released."""
        if argidx is None and name not in self._singly_assigned_vars and not self._is_counted(name):
            self.builder.store(value, self.getvar(name))
        else:
            super().storevar(value, name, argidx)

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:  # noqa: ARG002 - for a debugger
        """As in numba, without finding the size of a variable for a debugger."""
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """As in numba, without looking for implementations for constants where there are none."""
        if not (expr.static_lhs is ir.UNDEFINED and expr.static_rhs is ir.UNDEFINED):
            return super().lower_binop(resty, expr, op)
        function = self.context.typing_context.resolve_value_type(op)
        signature = self.fndesc.calltypes[expr]
        operands = [self._cast_var(var, kind) for var, kind in zip((expr.lhs, expr.rhs), signature.args, strict=True)]
        found = function.get_call_type(self.context.typing_context, signature.args, {})
        result = self.context.get_function(function, found)(self.builder, operands)
        return self.context.cast(self.builder, result, signature.return_type, resty)

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """As in numba; an element of an array is loaded without a copy of the array's description."""
        array, kind = signature.args
        if not _is_element(array, kind):
            return super().lower_getitem(resty, expr, value, index, signature)
        from numba.np.arrayobj import load_item

        item = load_item(self.context, self.builder, array, self._element(value, index, array, kind))
        return self.context.cast(self.builder, item, signature.return_type, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """As in numba; an element of an array is stored without a copy of the array's description."""
        array, kind, _ = signature.args
        if not _is_element(array, kind):
            return super().lower_setitem(target_var, index_var, value_var, signature)
        from numba.np.arrayobj import store_item

        value = self.context.cast(
            self.builder, self._cast_var(value_var, signature.args[2]), signature.args[2], array.dtype
        )
        store_item(self.context, self.builder, array, value, self._element(target_var, index_var, array, kind))
        return None

    def _element(self, array_var: Any, index_var: Any, array: Any, kind: Any) -> Any:
        """A pointer to an element."""
        from numba.np.arrayobj import fix_integer_index

        builder, described, index = self.builder, self._cast_var(array_var, array), self._cast_var(index_var, kind)
        model = self.context.data_model_manager[array]

        def field(name: str) -> Any:
            return builder.extract_value(described, model.get_field_position(name))

        kinds, indices = [kind], [index]
        if isinstance(kind, types.BaseTuple):
            kinds, indices = list(kind.types), cgutils.unpack_tuple(builder, index, len(kind))
        shape = cgutils.unpack_tuple(builder, field("shape"), array.ndim)
        strides = [] if array.layout in "CF" else cgutils.unpack_tuple(builder, field("strides"), array.ndim)
        fixed = [fix_integer_index(self.context, builder, *each) for each in zip(kinds, indices, shape, strict=True)]
        return cgutils.get_item_pointer2(self.context, builder, field("data"), shape, strides, array.layout, fixed)

    def _is_counted(self, name: str) -> bool:
        if not self.context.enable_nrt:
            return False
        return bool(self.context.data_model_manager[self.typeof(name)].contains_nrt_meminfo())


def _is_element(array: Any, index: Any) -> bool:
    """Whether an index denotes an element of an array."""
    parts = index.types if isinstance(index, types.BaseTuple) else [index]
    if not (isinstance(array, types.Array) and isinstance(array.dtype, types.Number | types.Boolean)):
        return False
    return len(parts) == array.ndim and all(isinstance(part, types.Integer) for part in parts)
