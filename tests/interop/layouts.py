"""Layouts of the universal format (FORMAT.md section 6), by lists of elements: written from the text, not from our code."""
import itertools
import math
import struct

import xxhash


def number(text):
    return int(text)  # JSON integers above 2^53 - 1 are text


def writer_count(layout):
    count = math.prod(number(axis["size"]) for axis in layout.get("axes", []))
    assert 1 <= count <= 2**20
    return count


def coordinates(layout, writer):
    out = []
    for axis in reversed(layout.get("axes", [])):
        writer, at = divmod(writer, number(axis["size"]))
        out.append(at)
    return out[::-1]


def part_of(layout, axes, at):
    part, parts = 0, 1
    for axis in axes:
        size = number(layout["axes"][axis]["size"])
        part, parts = part * size + at[axis], parts * size
    return part, parts


def even(length, part, parts):
    q, r = divmod(length, parts)
    begin = part * q + min(part, r)
    return begin, begin + q + (1 if part < r else 0)


def divide(cut, length, part, parts):
    if cut["rule"] == "ceil":
        c = -(-length // parts)
        return min(part * c, length), min((part + 1) * c, length)
    if cut["rule"] == "even":
        return even(length, part, parts)
    assert cut["rule"] == "points" and len(cut["points"]) == parts + 1
    return number(cut["points"][part]), number(cut["points"][part + 1])


def ranges_of(indices):
    """Runs of neighbours: [0, 1, 4, 5, 6] gives [(0, 2), (4, 7)]."""
    out = []
    for index in indices:
        if out and out[-1][1] == index:
            out[-1][1] = index + 1
        else:
            out.append([index, index + 1])
    return out


def held(layout, shape, begin, writer):
    """The chunks of a writer: (offset, size, (flat begin, flat end) or None)."""
    if math.prod(shape) == 0:
        return [([0] * len(shape), list(shape), None)] if writer == 0 else []
    if writer >= writer_count(layout):
        return []
    at = coordinates(layout, writer)
    if any(at[step["axis"]] not in [number(i) for i in step["indices"]] for step in layout.get("at", [])):
        return []
    left = [list(range(n)) for n in shape]
    for cut in layout.get("cuts", []):
        part, parts = part_of(layout, cut["axes"], at)
        before, kept, base = left[cut["dim"]], [], 0
        for length in [number(n) for n in cut.get("segments", [])] or [len(before)]:
            first, last = divide(cut, length, part, parts)
            kept += before[base + first:base + last]
            base += length
        assert base == len(before)
        left[cut["dim"]] = kept
    boxes = [([b for b, _ in box], [e - b for b, e in box]) for box in itertools.product(*map(ranges_of, left))]
    if "flat" not in layout:
        return [(*box, None) for box in boxes]
    part, _ = part_of(layout, layout["flat"]["axes"], at)
    width, chunks, base = number(layout["flat"]["part"]), [], 0
    for offset, size in boxes:
        elements = math.prod(size)
        first = min(max(part * width - begin - base, 0), elements)
        last = min(max((part + 1) * width - begin - base, 0), elements)
        base += elements
        if (first, last) == (0, elements):
            chunks.append((offset, size, None))
        elif first < last:
            chunks.append((offset, size, (first, last)))
    return chunks


def written(layout, name, shape, bits, begin, writer):
    """The chunks of these that the owner rule assigns to the writer."""
    chunks = held(layout, shape, begin, writer)
    if math.prod(shape) == 0 or not chunks:
        return chunks
    taken = {axis for step in layout.get("cuts", []) + ([layout["flat"]] if "flat" in layout else []) for axis in step["axes"]}
    several = {step["axis"]: [number(i) for i in step["indices"]] for step in layout.get("at", [])}
    at, replica, replicas = coordinates(layout, writer), 0, 1
    for axis, entry in enumerate(layout.get("axes", [])):
        if axis in taken:
            continue
        choices = several.get(axis, range(number(entry["size"])))
        replica, replicas = replica * len(choices) + list(choices).index(at[axis]), replicas * len(choices)
    out = []
    for offset, size, flat in chunks:
        elements = flat[1] - flat[0] if flat else math.prod(size)
        if replicas == 1:
            out.append((offset, size, flat))
        elif elements * bits < 2**23:
            if xxhash.xxh64(name.encode(), seed=0).intdigest() % replicas == replica:
                out.append((offset, size, flat))
        elif flat:
            unit = next(n for n in range(1, 9) if n * bits % 8 == 0)
            first, last = (n * unit for n in even(elements // unit, replica, replicas))
            if first < last:
                out.append((offset, size, (flat[0] + first, flat[0] + last)))
        else:
            dim = next(d for d, n in enumerate(size) if n > 1)
            row = math.prod(size[dim + 1:])
            unit = next(n for n in range(1, 9) if n * row * bits % 8 == 0)
            first, last = (n * unit for n in even(size[dim] // unit, replica, replicas))
            if first < last:
                out.append(([*offset[:dim], offset[dim] + first, *offset[dim + 1:]], [*size[:dim], last - first, *size[dim + 1:]], None))
    return out


def elements_of(shape, offset, size, flat):
    """Row-major numbers, in the tensor, of the elements of a chunk in its order."""
    strides = [math.prod(shape[d + 1:]) for d in range(len(shape))]
    axes = [[(o + i) * stride for i in range(n)] for o, n, stride in zip(offset, size, strides)]
    out = [sum(point) for point in itertools.product(*axes)]
    return out[slice(*flat)] if flat else out


def read_index(data, id_bytes, writer, shapes):
    """Section 6.3: row -> list by volume of (chunk, place in its file)."""
    magic, major, minor, who, an_id, count, word_count, zeros = struct.unpack_from("<8sHHI16sQQ16s", data)
    assert (magic, major, who, an_id) == (b"CKPTINDX", 1, writer, id_bytes) and (minor > 0 or zeros == bytes(16))
    assert len(data) == 64 + 64 * count + 8 * word_count
    words = struct.unpack_from(f"<{word_count}Q", data, 64 + 64 * count)
    rows, last, next_word, reach = {}, None, 0, 0
    for n in range(count):
        row, volume, begin, end, furthest, place, elements, box, flat = struct.unpack_from("<IIQQQQQQQ", data, 64 + 64 * n)
        assert last is None or last < (row, begin, volume)
        reach = end if last is None or last[0] != row else max(reach, end)
        last = (row, begin, volume)
        assert furthest == reach
        shape = shapes[row]
        total = math.prod(shape)
        if box == 2**64 - 1:
            chunk = ([0] * len(shape), list(shape), None if (begin, end) == (0, total) else (begin, end))
        else:
            assert box == next_word and flat in (0, 1)
            n_dims = len(shape)
            offset, size = list(words[box:box + n_dims]), list(words[box + n_dims:box + 2 * n_dims])
            pair = words[box + 2 * n_dims:box + 2 * n_dims + 2] if flat else None
            next_word += 2 * n_dims + (2 if flat else 0)
            assert size != list(shape) and all(o + s <= n for o, s, n in zip(offset, size, shape))
            chunk = (offset, size, tuple(pair) if flat else None)
            assert begin == elements_of(shape, *chunk[:2], None)[0] and end == elements_of(shape, *chunk[:2], None)[-1] + 1
        assert elements == len(elements_of(shape, *chunk))
        rows.setdefault(row, {})[volume] = (chunk, place)
    assert next_word == word_count
    for volumes in rows.values():
        assert sorted(volumes) == list(range(len(volumes)))
    return rows
