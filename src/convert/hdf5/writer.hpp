#pragma once

#include "convert/write_request.hpp"

namespace ckpt::hdf5 {

/// Lays out one HDF5 file: groups by the parts of the names between dots, one contiguous dataset per tensor, tied names
/// as hard links, the conversion's id as root attribute `ckpt_id`. A dataset that is also a group becomes
/// NAME/__value__. The helper writes everything but the data into a scratch file, from which the engine takes the bytes
/// between the datasets. The element types without an HDF5 counterpart (BF16, 4 to 8 bit floats) are unsigned integers
/// of their width; every dataset's attribute `ckpt_dtype` holds its dtype.
Result<Skeleton> lay_out(const WriteRequest& request);

}  // namespace ckpt::hdf5
