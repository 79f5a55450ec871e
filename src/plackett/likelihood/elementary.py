"""Exponentials that a compiler can vectorise.

numba calls libm one value at a time (6 to 8 ns per exponential). The functions here are plain arithmetic without
branches or calls, so LLVM vectorises loops over them (about 1 ns). They take x <= 700 (87 in single precision) and are
cut off at -700 (-87), where the result is effectively 0; NaN stays NaN.

They must not be compiled with reassociation, which would remove the rounding trick below; fusing is harmless.
"""

import math
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from plackett.compilation import inner

# Adding 1.5 * 2^52 (or 2^23 in single precision) to a small number rounds it to an integer, which is then found in the
# low bits of the sum: rounding and conversion in one vector addition.
_ROUND = 6755399441055744.0
_ROUND32 = 12582912.0
_LOG2E = 1.4426950408889634
# log 2 in two parts; the first has trailing zeros, so that n * _LN2_HIGH is exact for |n| < 2^20.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_LN2_HIGH32 = 0.693359375
_LN2_LOW32 = -2.12194440e-4


def _bitcast(result: Any, argument: Any, target: ir.Type) -> Any:
    """An intrinsic that reads the bits of `argument` as a value of type `result`."""

    def typed(_context: Any, _value: Any) -> Any:
        def generate(_target_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            return builder.bitcast(values[0], target)

        return result(argument), generate

    return intrinsic(typed)


float64_from_bits = _bitcast(types.float64, types.int64, ir.DoubleType())
bits_of_float64 = _bitcast(types.int64, types.float64, ir.IntType(64))
_float32_from_bits = _bitcast(types.float32, types.int32, ir.FloatType())
_bits_of_float32 = _bitcast(types.int32, types.float32, ir.IntType(32))


@inner
def _power_and_rest(x):
    """2^n and exp(r) - 1 for x = n log 2 + r with |r| <= log(2) / 2; x is cut off at -700.

    The Taylor series of exp(r) - 1 up to r^12 leaves 5e-16 relative.
    """
    x = max(x, -700.0)
    shifted = x * _LOG2E + _ROUND
    n = shifted - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    return float64_from_bits((bits_of_float64(shifted) + 1023) << 52), p * r * r + r


@inner
def fast_expm1(x):
    """exp(x) - 1, to 6e-16 relative.

    2^n (exp(r) - 1) + (2^n - 1): for n = 0 the second part is an exact zero, so that small x keep their full relative
    accuracy, which 1 - exp(x) would lose. Below -700 the result is -1 to all digits.
    """
    power, rest = _power_and_rest(x)
    return power * rest + (power - 1.0)


@inner
def _exp_float64(x):
    """To 5e-16 relative."""
    power, rest = _power_and_rest(x)
    return power * rest + power


@inner
def _exp_float32(x):
    """To 2e-7 relative."""
    x = max(x, numba.float32(-87.0))
    shifted = x * numba.float32(_LOG2E) + numba.float32(_ROUND32)
    n = shifted - numba.float32(_ROUND32)
    r = (x - n * numba.float32(_LN2_HIGH32)) - n * numba.float32(_LN2_LOW32)
    power = _float32_from_bits(numba.int32((_bits_of_float32(shifted) + numba.int32(127)) << numba.int32(23)))
    p = numba.float32(1.0 / 5040.0)
    p = p * r + numba.float32(1.0 / 720.0)
    p = p * r + numba.float32(1.0 / 120.0)
    p = p * r + numba.float32(1.0 / 24.0)
    p = p * r + numba.float32(1.0 / 6.0)
    p = p * r + numba.float32(0.5)
    p = p * r + numba.float32(1.0)
    return power * (p * r + numba.float32(1.0))


def fast_exp(x: float) -> float:
    """exp(x) in the precision of x."""
    return math.exp(x)


@overload(fast_exp, inline="always")
def _fast_exp_compiled(x):  # numba compares the signatures
    if x == types.float32:
        return lambda x: _exp_float32(x)
    return lambda x: _exp_float64(x)


@inner
def fast_log1p_of_unit(x):
    """log(1 + x) for 0 <= x <= 1, to 4e-16 relative.

    2 atanh(u) with u = x / (2 + x) <= 1/3: the series in u^2 <= 1/9 needs 15 terms.
    """
    u = x / (2.0 + x)
    s = u * u
    p = 1.0 / 31.0
    p = p * s + 1.0 / 29.0
    p = p * s + 1.0 / 27.0
    p = p * s + 1.0 / 25.0
    p = p * s + 1.0 / 23.0
    p = p * s + 1.0 / 21.0
    p = p * s + 1.0 / 19.0
    p = p * s + 1.0 / 17.0
    p = p * s + 1.0 / 15.0
    p = p * s + 1.0 / 13.0
    p = p * s + 1.0 / 11.0
    p = p * s + 1.0 / 9.0
    p = p * s + 1.0 / 7.0
    p = p * s + 1.0 / 5.0
    p = p * s + 1.0 / 3.0
    return 2.0 * u * (1.0 + p * s)
