"""Dynamic programming over down-sets: the sets of items that can have been placed at some time.

The order is built from the best item on. From a down-set D the next item i is available if all items above it are in D,
and it comes next with probability exp(w_i) / L(D), L(D) the worth of the items not in D. Two passes in log space,

    a(D) = log of the probability of reaching D,    b(D) = log of the probability of a consistent order after D,

give log P = a(all) and the probability g(D) = exp(a(D) + b(D) - log P) that a consistent order passes D. Item j waits
in every D without j, so with E_j = sum of g(D) / L(D) over these

    d log P / d w_j = 1 - exp(w_j) E_j

Items are arranged in chains, each item below the one before it. A down-set holds the first items of each chain, and
its code is their numbers as digits of a number. Items that a chain has left are the same for all D with the same digit,
so that sums over D are collected by chain and digit.
"""

import math

import numpy as np

from plackett.compilation import inner, kernel
from plackett.likelihood.kernel_parts import log_add, longest_list
from plackett.random_kernels import GOLDEN

COUNT, VALUE, DERIVATIVES = 0, 1, 2
_SMALLEST_TABLE = 1024
_LARGEST_CODE = 1 << 62
_SMALLEST_SUM, _SMALLEST_LOG = 1e-280, -600.0
# Rows of `chain`: of an item, its chain and its place in it; of a chain, its first item, its length and its stride.
CHAIN, DEPTH, HEAD, LENGTH, STRIDE, NEXT = range(6)


@inner
def _make_chains(lo, n, parent_starts, parents, chain):
    """Arrange the items in chains; returns their number, or -1 if codes would not fit into 62 bits."""
    chains = 0
    for i in range(n):
        chain[NEXT, i] = -1
        best = -1
        for k in range(parent_starts[lo + i], parent_starts[lo + i + 1]):
            p = parents[k] - lo
            if chain[NEXT, p] < 0 and (best < 0 or chain[DEPTH, p] > chain[DEPTH, best]):
                best = p
        if best < 0:
            chain[CHAIN, i], chain[DEPTH, i] = chains, 0
            chain[HEAD, chains], chain[LENGTH, chains] = i, 1
            chains += 1
        else:
            chain[NEXT, best] = i
            chain[CHAIN, i], chain[DEPTH, i] = chain[CHAIN, best], chain[DEPTH, best] + 1
            chain[LENGTH, chain[CHAIN, i]] += 1
    stride = 1
    for c in range(chains):
        chain[STRIDE, c] = stride
        if stride > _LARGEST_CODE // (chain[LENGTH, c] + 1):
            return -1
        stride *= chain[LENGTH, c] + 1
    return chains


@inner
def _slot(code, table, size, codes):
    """Where the code is in the first `size` entries of the hash table, or the free slot where it belongs."""
    slot = np.int64((np.uint64(code) * GOLDEN) >> np.uint64(32)) & (size - 1)
    while table[slot] >= 0 and codes[table[slot]] != code:
        slot = (slot + 1) & (size - 1)
    return slot


@inner
def _table_size(sets):
    """A power of two, at least twice the number of sets."""
    size = _SMALLEST_TABLE
    while size < 2 * sets:
        size *= 2
    return size


@inner
def _refill(table, size, codes, begin, end):
    for slot in range(size):
        table[slot] = -1
    for s in range(begin, end):
        table[_slot(codes[s], table, size, codes)] = s


@inner
def _log_rest(s, chains, digits, position, left, log_left):
    """The log of the worth of all items that are not in set s."""
    total = 0.0
    for c in range(chains):
        total += left[position[c] + digits[s, c]]
    if total > _SMALLEST_SUM:
        return math.log(total)
    log_total = -math.inf  # scores so far apart that worths side by side exceed the range of floats
    for c in range(chains):
        log_total = log_add(log_total, log_left[position[c] + digits[s, c]])
    return log_total


@inner
def _available(s, c, lo, parent_starts, parents, chain, digits, position, item_at):
    """The next item of a chain, if all items above it are in set s, else -1."""
    if digits[s, c] == chain[LENGTH, c]:
        return -1
    i = item_at[position[c] + digits[s, c]]
    for k in range(parent_starts[lo + i], parent_starts[lo + i + 1]):
        p = parents[k] - lo
        if digits[s, chain[CHAIN, p]] <= chain[DEPTH, p]:
            return -1
    return i


@kernel
def down_set_blocks(
    first, last, block_starts, parent_starts, parents, scores, limits, order, states, value, gradient, curvature
):
    """The down-sets of the blocks first..last: their number, and by `order` the value, or the derivatives as well.

    `states[b]` becomes -1 if block b has more than limits[b] down-sets. The curvature is that of the orders, an upper
    bound: the sum over D of g(D) p (1 - p), p the probability that item j comes next after D.
    """
    longest, most = longest_list(block_starts, first, last), 1
    for b in range(first, last):
        most = max(most, limits[b])
    chain = np.empty((6, longest), np.int64)
    position, item_at = np.empty(longest, np.int64), np.empty(2 * longest, np.int64)
    left, log_left = np.empty(2 * longest), np.empty(2 * longest)
    waited, waited_square = np.empty(2 * longest), np.empty(2 * longest)
    levels = np.empty(longest + 2, np.int64)
    room = min(most, 4096)
    codes, before, after = np.empty(room, np.int64), np.empty(room), np.empty(room if order == DERIVATIVES else 0)
    digits = np.empty((1, 1), np.int32)
    table = np.empty(_SMALLEST_TABLE, np.int64)
    for b in range(first, last):
        lo = block_starts[b]
        n = block_starts[b + 1] - lo
        chains = _make_chains(lo, n, parent_starts, parents, chain)
        states[b] = -1
        if chains < 0:
            continue
        if digits.shape[0] < codes.size or digits.shape[1] < chains:
            digits = np.empty((codes.size, max(chains, digits.shape[1])), np.int32)
        peak = scores[lo]
        for i in range(n):
            peak = max(peak, scores[lo + i])
        free = 0
        for c in range(chains):  # a chain takes one place more than it has items: the set of all of them
            position[c] = free
            i = chain[HEAD, c]
            for d in range(chain[LENGTH, c]):
                item_at[free + d] = i
                i = chain[NEXT, i]
            free += chain[LENGTH, c]
            left[free], log_left[free] = 0.0, -math.inf
            for d in range(free - 1, position[c] - 1, -1):
                log_left[d] = log_add(log_left[d + 1], scores[lo + item_at[d]] - peak)
                left[d] = math.exp(log_left[d])
            free += 1
            digits[0, c] = 0
        codes[0], before[0] = 0, 0.0
        levels[0], levels[1] = 0, 1
        fits = True
        for step in range(n):
            begin, end = levels[step], levels[step + 1]
            found = end
            size = _table_size(2 * (end - begin))
            if size > table.size:
                table = np.empty(size, np.int64)
            _refill(table, size, codes, 0, 0)
            for s in range(begin, end):
                log_rest = _log_rest(s, chains, digits, position, left, log_left) + peak
                for c in range(chains):
                    i = _available(s, c, lo, parent_starts, parents, chain, digits, position, item_at)
                    if i < 0:
                        continue
                    code = codes[s] + chain[STRIDE, c]
                    slot = _slot(code, table, size, codes)
                    log_reached = before[s] + (scores[lo + i] - log_rest)
                    if table[slot] >= 0:
                        before[table[slot]] = log_add(before[table[slot]], log_reached)
                        continue
                    if found == limits[b]:
                        fits = False
                        break
                    if found == codes.size:
                        room = min(2 * codes.size, most)
                        more_codes, more_before = np.empty(room, np.int64), np.empty(room)
                        more_digits = np.empty((room, digits.shape[1]), np.int32)
                        for k in range(found):
                            more_codes[k], more_before[k] = codes[k], before[k]
                            for d in range(chains):
                                more_digits[k, d] = digits[k, d]
                        codes, before, digits = more_codes, more_before, more_digits
                    codes[found], before[found] = code, log_reached
                    for d in range(chains):
                        digits[found, d] = digits[s, d]
                    digits[found, c] += 1
                    table[slot] = found
                    found += 1
                    if 2 * (found - end) > size:
                        size *= 4
                        if size > table.size:
                            table = np.empty(size, np.int64)
                        _refill(table, size, codes, end, found)
                if not fits:
                    break
            if not fits:
                break
            levels[step + 2] = found
        if not fits:
            continue
        total = levels[n + 1]
        states[b] = total
        value[b] = before[total - 1]
        if order < DERIVATIVES:
            continue
        if after.size < total:
            after = np.empty(codes.size)
        for k in range(free):
            waited[k], waited_square[k] = 0.0, 0.0
        after[total - 1] = 0.0
        for step in range(n - 1, -1, -1):
            size = _table_size(levels[step + 2] - levels[step + 1])
            _refill(table, size, codes, levels[step + 1], levels[step + 2])
            for s in range(levels[step], levels[step + 1]):
                log_rest = _log_rest(s, chains, digits, position, left, log_left) + peak
                log_after = -math.inf
                for c in range(chains):
                    i = _available(s, c, lo, parent_starts, parents, chain, digits, position, item_at)
                    if i >= 0:
                        slot = _slot(codes[s] + chain[STRIDE, c], table, size, codes)
                        log_after = log_add(log_after, after[table[slot]] + (scores[lo + i] - log_rest))
                after[s] = log_after
                share = math.exp(before[s] + log_after - value[b])
                inverse = math.exp(peak - log_rest) if log_rest - peak > _SMALLEST_LOG else 0.0
                for c in range(chains):
                    k = position[c] + digits[s, c]
                    if digits[s, c] < chain[LENGTH, c]:  # scaled by the worth of what is left of the chain
                        part = left[k] * inverse if inverse > 0.0 else math.exp(log_left[k] + peak - log_rest)
                        waited[k] += share * part
                        waited_square[k] += share * part * part
        for c in range(chains):
            mean, square = 0.0, 0.0
            for k in range(position[c], position[c] + chain[LENGTH, c]):
                if k > position[c]:
                    shrink = math.exp(log_left[k] - log_left[k - 1])
                    mean *= shrink
                    square *= shrink * shrink
                mean += waited[k]
                square += waited_square[k]
                worth = math.exp(scores[lo + item_at[k]] - peak - log_left[k])
                gradient[lo + item_at[k]] = 1.0 - worth * mean
                curvature[lo + item_at[k]] = max(worth * mean - worth * worth * square, 0.0)
    return 0
