"""Sums over contexts in compiled code.

A context is what is left of a list after its first choices. The contexts of one order of choices are nested, so their
denominators follow each other from the last to the first by additions alone: with d the document chosen from C,
Z_C = Z_{C without d} + exp(s_d). Subtracting from the sum over the whole list would cancel where little is left. All
sums are kept as logarithms, because the best documents may score a thousand above the rest.

Arrays of a list, its documents arranged so that the removable ones come first (see `Contexts`):

    chosen[q, j]   the document that order q chooses at place j
    owner[q, j]    the first order that had the same documents removed at place j: it holds the context they share
    count[q, j]    how many orders share the context, at its owner
    log_z[q, j]    logsumexp of the scores in the context
"""

import math

import numpy as np

from plackett.compilation import inner, kernel
from plackett.likelihood.elementary import fast_exp, fast_log1p_of_unit
from plackett.likelihood.kernel_parts import exponentials, longest_list, number_leaves


@kernel
def share_contexts(first, last, offsets, places, chosen, owner, count):
    """Find the contexts that are equal as sets, whatever the order in which their documents were removed.

    The first j choices of two orders are the same set if the largest place that the one gives to those of the other is
    below j: exact, and without building a set.
    """
    longest = longest_list(offsets, first, last)
    place_of = np.full(longest, longest)  # of each document in order q; documents it does not choose come last
    for b in range(first, last):
        begin, end = places[b], places[b + 1]
        for q in range(chosen.shape[0]):
            for at in range(begin, end):
                place_of[chosen[q, at]] = at - begin
                owner[q, at] = q
            for earlier in range(q):
                furthest = -1
                for at in range(begin, end):
                    if furthest < at - begin and owner[q, at] == q:
                        owner[q, at] = earlier
                    furthest = max(furthest, place_of[chosen[earlier, at]])
            for at in range(begin, end):
                place_of[chosen[q, at]] = longest
                count[owner[q, at], at] += 1
    return -1


@inner
def _log_add(x, y):
    """log(exp(x) + exp(y)), one of them finite."""
    high = max(x, y)
    return high + fast_log1p_of_unit(fast_exp(min(x, y) - high))


@inner
def _gather(scores, rows, s):
    """s = scores[rows], relative to the largest, which is returned."""
    peak = -math.inf
    for i in range(rows.size):
        s[i] = scores[rows[i]]
        peak = max(peak, s[i])
    for i in range(rows.size):
        s[i] -= peak
    return peak


@inner
def _mark(removed, choices, value):
    for d in choices:
        removed[d] = value


@inner
def _log_denominators(s, removable, chosen, owner, e, removed, log_z):
    """Fill log_z, and e with exp(s - peak) of the documents that are never removed; returns their peak."""
    peak = -math.inf
    for i in range(removable, s.size):
        peak = max(peak, s[i])
    total = exponentials(s[removable:], peak, e[removable:])
    final = chosen.shape[1] - 1
    for q in range(chosen.shape[0]):
        for j in range(final, -1, -1):
            if owner[q, j] != q:
                log_z[q, j] = log_z[owner[q, j], j]
            elif j < final:
                log_z[q, j] = _log_add(log_z[q, j + 1], s[chosen[q, j]])
            else:
                _mark(removed, chosen[q, :final], True)
                high = peak
                for d in range(removable):
                    high = high if removed[d] else max(high, s[d])
                left = total * fast_exp(peak - high)
                for d in range(removable):
                    left += 0.0 if removed[d] else fast_exp(s[d] - high)
                log_z[q, j] = high + math.log(left)
                _mark(removed, chosen[q, :final], False)
    return peak


@inner
def _pulls(s, removable, chosen, e, peak, log_z, within, level, pull):
    """pull_d = sum over orders and over their contexts C that hold d of exp(s_d) / Z_C.

    An order removes a document at its place, so that its contexts up to there hold it: `within` is the log of the sum
    of 1 / Z up to each place. Documents that are never removed have the sum over all contexts in common.
    """
    final = chosen.shape[1] - 1
    pull[:removable] = 0.0
    everywhere = -math.inf
    for q in range(chosen.shape[0]):
        within[0] = -log_z[q, 0]
        for j in range(final):
            within[j + 1] = _log_add(within[j], -log_z[q, j + 1])
        level[:removable] = within[final]
        for j in range(final):
            level[chosen[q, j]] = within[j]
        for d in range(removable):
            pull[d] += fast_exp(s[d] + level[d])
        everywhere = _log_add(everywhere, within[final])
    multiplier = math.exp(peak + everywhere)
    for d in range(removable, s.size):
        pull[d] = e[d] * multiplier


@kernel
def context_derivatives(
    first, last, scores, target, scale, offsets, rows, removable, places, chosen, owner, count, value, pull
):
    """Per list scale * sum_C count_C log Z_C - sum_d target_d s_d; per document scale * sum_C count_C p(d | C).

    The targets of a list add up to scale * sum_C count_C, so its largest score can be subtracted from all.
    """
    longest, deepest = longest_list(offsets, first, last), longest_list(places, first, last)
    s_buffer, e_buffer, pull_buffer = np.empty(longest), np.empty(longest), np.empty(longest)
    level, within, removed = np.empty(longest), np.empty(deepest), np.zeros(longest, np.bool_)
    log_z_buffer = np.empty((chosen.shape[0], deepest))
    for b in range(first, last):
        begin, end, place, places_end = offsets[b], offsets[b + 1], places[b], places[b + 1]
        value[b] = 0.0
        if place == places_end:
            pull[begin:end] = 0.0
            continue
        size, choices, owners = end - begin, chosen[:, place:places_end], owner[:, place:places_end]
        s, e, pulls, log_z = s_buffer[:size], e_buffer[:size], pull_buffer[:size], log_z_buffer[:, : places_end - place]
        _gather(scores, rows[begin:end], s)
        peak = _log_denominators(s, removable[b], choices, owners, e, removed, log_z)
        _pulls(s, removable[b], choices, e, peak, log_z, within, level, pulls)
        total = 0.0
        for q in range(chosen.shape[0]):
            for j in range(places_end - place):
                total += count[q, place + j] * log_z[q, j]
        total *= scale[b]
        for i in range(size):
            row = rows[begin + i]
            total -= target[row] * s[i]
            pull[row] = scale[b] * pulls[i]
        value[b] = total
    return -1


@inner
def _add_curvature(s, removable, chosen, owner, count, e, peak, log_z, removed, slot, mass, share, curvature):
    """curvature += sum over contexts C of count_C p (1 - p), p = `share` of the leaf in C, for the leaves of a list.

    The shares of a context follow from those of the next one of its order, as the denominators do.
    """
    mass[:] = 0.0
    for i in range(removable, s.size):
        mass[slot[i]] += e[i]
    for q in range(chosen.shape[0]):
        unseen = 0  # contexts that this order is the owner of
        for j in range(chosen.shape[1]):
            unseen += owner[q, j] == q
        started = False
        for j in range(chosen.shape[1] - 1, -1, -1):
            if unseen == 0:
                break
            if started:
                rest = fast_exp(log_z[q, j + 1] - log_z[q, j])
                for k in range(share.size):
                    share[k] *= rest
                share[slot[chosen[q, j]]] += fast_exp(s[chosen[q, j]] - log_z[q, j])
            elif owner[q, j] == q:
                started = True
                rest = fast_exp(peak - log_z[q, j])
                for k in range(share.size):
                    share[k] = mass[k] * rest
                _mark(removed, chosen[q, :j], True)
                for d in range(removable):
                    if not removed[d]:
                        share[slot[d]] += fast_exp(s[d] - log_z[q, j])
                _mark(removed, chosen[q, :j], False)
            if owner[q, j] == q:
                unseen -= 1
                for k in range(share.size):
                    curvature[k] += count[q, j] * share[k] * max(1.0 - share[k], 0.0)


@kernel
def context_curvature(
    first, last, scores, leaf, scale, offsets, rows, removable, places, chosen, owner, count, curvatures
):  # fmt: skip
    """Add the second derivative along each leaf, scale * sum_C count_C p (1 - p), of the lists first..last.

    A list that lies entirely in one leaf adds exactly 0.
    """
    longest, deepest = longest_list(offsets, first, last), longest_list(places, first, last)
    s_buffer, e_buffer, removed = np.empty(longest), np.empty(longest), np.zeros(longest, np.bool_)
    log_z_buffer = np.empty((chosen.shape[0], deepest))
    slot, leaf_of_slot = np.empty(longest, np.int32), np.empty(longest, np.int32)
    slot_of_leaf = np.full(curvatures.size, -1, np.int32)
    mass, share, curvature = np.empty(longest), np.empty(longest), np.empty(longest)
    for b in range(first, last):
        begin, end, place, places_end = offsets[b], offsets[b + 1], places[b], places[b + 1]
        slots = number_leaves(leaf, rows[begin:end], slot_of_leaf, leaf_of_slot, slot)
        if slots < 2 or place == places_end:
            continue
        size, choices, owners = end - begin, chosen[:, place:places_end], owner[:, place:places_end]
        s, e, log_z = s_buffer[:size], e_buffer[:size], log_z_buffer[:, : places_end - place]
        _gather(scores, rows[begin:end], s)
        peak = _log_denominators(s, removable[b], choices, owners, e, removed, log_z)
        curvature[:slots] = 0.0
        _add_curvature(
            s, removable[b], choices, owners, count[:, place:places_end], e, peak, log_z, removed, slot,
            mass[:slots], share[:slots], curvature[:slots],
        )  # fmt: skip
        for k in range(slots):
            curvatures[leaf_of_slot[k]] += scale[b] * curvature[k]
    return -1
