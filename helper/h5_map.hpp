#pragma once

#include "helper/h5_file.hpp"

/// Lists the contents of a file on standard output. Little-endian; a text is u32 length and bytes:
///   u32 count of root attributes, then (text name, text value) each: scalars of numbers and texts
///   u32 count of datasets, then each:
///     text path; u64 address of its header; u8 type (as in a skeleton's request; 254 complex128, 255 unknown);
///     u8 big-endian; text description; u8 rank, u64 size per dimension; u64 offset of its bytes from the start of the
///     HDF5 file, 2^64 - 1 if they must be decoded; u64 bytes that it takes in the file; u64 rows of a chunk, else 1;
///     u32 attribute count, then (text, text) each: those that begin with "ckpt_"
///   u32 count of aliases, then (text path, text path of the dataset) each
///   u32 count of notes, then text each
int print_map(const Range& range);
