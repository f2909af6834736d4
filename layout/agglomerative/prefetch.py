"""A hint to the processor that memory is read soon: loops over lists all over memory give it some turns ahead."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


@intrinsic
def prefetch(context: Any, array: Any, at: Any) -> Any:
    """Have the cache line of item `at` of a contiguous array, counted over all dimensions, on its way from memory.

    Nothing else happens, whatever the number: a hint reads nothing and never fails.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        items = make_array(signature.args[0])(context, builder, arguments[0]).data
        offset = context.cast(builder, arguments[1], signature.args[1], types.intp)
        line = builder.bitcast(builder.gep(items, [offset]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        hint = builder.module.declare_intrinsic(
            "llvm.prefetch", [line.type], ir.FunctionType(ir.VoidType(), [line.type, number, number, number])
        )
        builder.call(hint, [line, number(0), number(3), number(1)])  # to read, into all caches, data
        return context.get_dummy_value()

    return types.void(array, at), generate
