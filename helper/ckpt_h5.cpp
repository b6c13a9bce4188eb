// ckpt-h5: writes the skeleton of an HDF5 file, without the data, and reports where each dataset's bytes go; lists the
// contents of a file, and decodes datasets that are not stored contiguously.
//
//   ckpt-h5 MEMORY skeleton FILE   request on standard input, offsets on standard output; FILE is empty
//   ckpt-h5 MEMORY id FILE         prints the root attribute `ckpt_id`
//   ckpt-h5 MEMORY map SOURCE                   h5_map.hpp
//   ckpt-h5 MEMORY decode SOURCE TARGET SIZE    h5_decode.hpp; writes rows of datasets into TARGET, which they leave SIZE
//                                               bytes long at most
//
// SOURCE is FILE OFFSET BYTES DEVICE INODE: the HDF5 file is BYTES long, at OFFSET of FILE. FILE must be the file with this
// device and inode, which the caller has opened: by now its name may lead elsewhere. MEMORY, in bytes, is the helper's
// limit. It opens its files first; afterwards it may only read and write them (confine.hpp).
//
// The request of a skeleton, all numbers little-endian: u32 attribute count, then (text name, text value) each; u32
// dataset count, then each: text path, u8 type, u8 rank, u64 size per dimension, u32 attribute count and (text,
// text) each; u32 link count, then (text new path, text target path) each. A text is u32 length and bytes. The
// answer: u64 file size, then per dataset u64 offset (2^64 - 1 where it has no bytes). Datasets are contiguous,
// allocated early and never filled, so the caller writes the bytes itself. No time stamps: equal requests give equal
// files.
#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "format/little_endian.hpp"
#include "helper/confine.hpp"
#include "helper/h5_decode.hpp"
#include "helper/h5_file.hpp"
#include "helper/h5_map.hpp"
#include "helper/request.hpp"

namespace {

constexpr hsize_t kAlignment = 64;  // of every dataset: a multiple of any element's size

void check(bool good, const std::string& what) {
  if (!good) stop_at("the skeleton", what + " failed");
}

/// The element types of the request, in the order of safetensors' own list; see docs/formats.md, "HDF5".
hid_t element_type(std::uint64_t type) {
  switch (type) {
    case 0: {  // BOOL: the enumeration that h5py uses
      const hid_t boolean = H5Tenum_create(H5T_STD_I8LE);
      const signed char no = 0;
      const signed char yes = 1;
      check(H5Tenum_insert(boolean, "FALSE", &no) >= 0 && H5Tenum_insert(boolean, "TRUE", &yes) >= 0, "H5Tenum_insert");
      return boolean;
    }
    case 5:
      return H5Tcopy(H5T_STD_I8LE);
    case 11:
      return H5Tcopy(H5T_STD_I16LE);
    case 12:
    case 14:  // U16, BF16
      return H5Tcopy(H5T_STD_U16LE);
    case 13: {  // F16: IEEE 754 binary16
      const hid_t half = H5Tcopy(H5T_IEEE_F32LE);
      check(H5Tset_fields(half, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(half, 2) >= 0 && H5Tset_ebias(half, 15) >= 0,
            "H5Tset_fields");
      return half;
    }
    case 15:
      return H5Tcopy(H5T_STD_I32LE);
    case 16:
      return H5Tcopy(H5T_STD_U32LE);
    case 17:
      return H5Tcopy(H5T_IEEE_F32LE);
    case 18: {  // C64: the compound that h5py uses
      const hid_t complex = H5Tcreate(H5T_COMPOUND, 8);
      check(H5Tinsert(complex, "r", 0, H5T_IEEE_F32LE) >= 0 && H5Tinsert(complex, "i", 4, H5T_IEEE_F32LE) >= 0,
            "H5Tinsert");
      return complex;
    }
    case 19:
      return H5Tcopy(H5T_IEEE_F64LE);
    case 20:
      return H5Tcopy(H5T_STD_I64LE);
    case 21:
      return H5Tcopy(H5T_STD_U64LE);
    default:  // U8, and the 4 to 8 bit floats as their bytes
      return H5Tcopy(H5T_STD_U8LE);
  }
}

void write_attribute(hid_t object, const std::string& name, const std::string& value) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  check(H5Tset_size(type, value.empty() ? 1 : value.size()) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
            H5Tset_cset(type, H5T_CSET_UTF8) >= 0,
        "H5Tset_size");
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attribute = H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT);
  const std::string bytes = value.empty() ? std::string(1, '\0') : value;
  check(attribute >= 0 && H5Awrite(attribute, type, bytes.data()) >= 0, "attribute " + name);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
}

void write_attributes(hid_t object, Input& input) {
  const std::uint64_t count = input.number(4);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string name = input.text();
    write_attribute(object, name, input.text());
  }
}

struct Dataset {
  hid_t id = -1;
  std::uint64_t bytes = 0;
};

Dataset make_dataset(hid_t file, Input& input, hid_t create, hid_t link) {
  const std::string path = input.text();
  const hid_t type = element_type(input.number(1));
  const std::uint64_t rank = input.number(1);
  if (rank > H5S_MAX_RANK) stop(path + ": HDF5 holds at most 32 dimensions");
  std::vector<hsize_t> sizes;
  Dataset out;
  out.bytes = H5Tget_size(type);
  for (std::uint64_t d = 0; d < rank; ++d) {
    sizes.push_back(input.number(8));
    out.bytes *= sizes.back();
  }
  const hid_t space =
      rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(rank), sizes.data(), nullptr);
  out.id = H5Dcreate2(file, path.c_str(), type, space, link, create, H5P_DEFAULT);
  check(out.id >= 0, "dataset " + path);
  write_attributes(out.id, input);
  H5Sclose(space);
  H5Tclose(type);
  return out;
}

int skeleton(int descriptor) {
  Input input;
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  check(H5Pset_alignment(access, 1, kAlignment) >= 0 && H5Pset_small_data_block_size(access, 0) >= 0,
        "H5Pset_alignment");
  const hid_t file_create = H5Pcreate(H5P_FILE_CREATE);
  check(H5Pset_obj_track_times(file_create, false) >= 0, "H5Pset_obj_track_times");
  // HDF5 searches lists for freed space: with them the time grows with the square of the number of groups.
  check(H5Pset_file_space_strategy(file_create, H5F_FSPACE_STRATEGY_NONE, false, 1) >= 0, "H5Pset_file_space_strategy");
  const hid_t file = make_file(descriptor, file_create, access);
  check(file >= 0, "H5Fcreate");
  write_attributes(file, input);

  const hid_t create = H5Pcreate(H5P_DATASET_CREATE);
  check(H5Pset_layout(create, H5D_CONTIGUOUS) >= 0 && H5Pset_alloc_time(create, H5D_ALLOC_TIME_EARLY) >= 0 &&
            H5Pset_fill_time(create, H5D_FILL_TIME_NEVER) >= 0 && H5Pset_obj_track_times(create, false) >= 0,
        "H5Pset_layout");
  const hid_t link = H5Pcreate(H5P_LINK_CREATE);
  check(H5Pset_create_intermediate_group(link, 1) >= 0 && H5Pset_char_encoding(link, H5T_CSET_UTF8) >= 0,
        "H5Pset_create_intermediate_group");

  std::string answer;
  const std::uint64_t count = input.number(4);
  for (std::uint64_t i = 0; i < count; ++i) {
    const Dataset dataset = make_dataset(file, input, create, link);
    const haddr_t offset = dataset.bytes == 0 ? HADDR_UNDEF : H5Dget_offset(dataset.id);
    if (dataset.bytes != 0 && offset == HADDR_UNDEF) stop("HDF5: a dataset has no address in the file");
    ckpt::append_little_endian(answer, offset == HADDR_UNDEF ? ~std::uint64_t{0} : offset, 8);
    H5Dclose(dataset.id);
  }
  const std::uint64_t links = input.number(4);
  for (std::uint64_t i = 0; i < links; ++i) {
    const std::string path = input.text();
    const std::string target = input.text();
    check(H5Lcreate_hard(file, target.c_str(), file, path.c_str(), link, H5P_DEFAULT) >= 0, "link " + path);
  }
  check(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0, "H5Fflush");
  check(H5Fclose(file) >= 0, "H5Fclose");
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) stop("cannot get the size of the skeleton", Verdict::io);
  std::string head;
  ckpt::append_little_endian(head, static_cast<std::uint64_t>(info.st_size), 8);
  answer.insert(0, head);
  for (std::size_t at = 0; at < answer.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, answer.data() + at, answer.size() - at);
    if (written <= 0) stop("cannot answer", Verdict::io);
    at += static_cast<std::size_t>(written);
  }
  return 0;
}

int print_id(const Range& range) {
  const hid_t file = open_range(range);
  if (H5Aexists(file, "ckpt_id") <= 0) return 0;
  const hid_t attribute = H5Aopen(file, "ckpt_id", H5P_DEFAULT);
  const hid_t type = H5Aget_type(attribute);
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) > 0 || H5Tget_size(type) > 64) return 0;
  std::vector<char> value(H5Tget_size(type) + 1, '\0');
  if (H5Aread(attribute, type, value.data()) < 0) return 0;
  std::fputs(value.data(), stdout);
  return 0;
}

int open_or_stop(const char* path, int flags) {
  const int descriptor = ::open(path, flags | O_CLOEXEC);
  if (descriptor < 0) stop(std::string(path) + ": " + std::strerror(errno), Verdict::io);
  return descriptor;
}

std::uint64_t number(const char* text) {
  return std::strtoull(text, nullptr, 10);
}

/// SOURCE, from argv[3] on.
Range open_source(char** argv) {
  const Range range{.descriptor = open_or_stop(argv[3], O_RDONLY), .offset = number(argv[4]), .bytes = number(argv[5])};
  struct stat info {};
  if (::fstat(range.descriptor, &info) != 0) stop(std::string(argv[3]) + ": " + std::strerror(errno), Verdict::io);
  if (info.st_dev != number(argv[6]) || info.st_ino != number(argv[7]))
    stop(std::string(argv[3]) + ": the file was replaced while it was being read", Verdict::changed);
  return range;
}

int make_skeleton(const char* path, std::uint64_t memory) {
  limit_resources({.memory_bytes = memory, .file_bytes = UINT64_MAX});
  const int descriptor = open_or_stop(path, O_RDWR);
  confine();
  return skeleton(descriptor);
}

int find_id(const char* path, std::uint64_t memory) {
  limit_resources({.memory_bytes = memory});
  limit_seconds(0);
  Range range{.descriptor = open_or_stop(path, O_RDONLY)};
  struct stat info {};
  if (::fstat(range.descriptor, &info) != 0) stop("cannot get the size of the file", Verdict::io);
  range.bytes = static_cast<std::uint64_t>(info.st_size);
  confine();
  return print_id(range);
}

int find_map(char** argv, std::uint64_t memory) {
  limit_resources({.memory_bytes = memory});
  const Range range = open_source(argv);
  limit_seconds(range.bytes);
  confine();
  return print_map(range);
}

int decode_rows(char** argv, std::uint64_t memory) {
  limit_resources({.memory_bytes = memory, .file_bytes = number(argv[9])});
  const Range range = open_source(argv);
  const int target = open_or_stop(argv[8], O_WRONLY);
  Input input;
  limit_seconds(input.number(8));
  confine();
  std::vector<Rows> wanted;
  for (std::uint64_t left = input.number(4); left > 0; --left) {
    Rows& rows = wanted.emplace_back();
    rows.dataset = input.text();
    rows.address = input.number(8);
    rows.begin = input.number(8);
    rows.end = input.number(8);
    rows.offset = input.number(8);
  }
  return decode(range, wanted, target);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view verb = argc > 2 ? argv[2] : "";
  const std::uint64_t memory = argc > 1 ? number(argv[1]) : 0;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  if (argc == 4 && verb == "skeleton") return make_skeleton(argv[3], memory);
  if (argc == 4 && verb == "id") return find_id(argv[3], memory);
  if (argc == 8 && verb == "map") return find_map(argv, memory);
  if (argc == 10 && verb == "decode") return decode_rows(argv, memory);
  std::fputs("usage: ckpt-h5 MEMORY skeleton FILE | id FILE | map ... | decode ...      (started by ckpt)\n", stderr);
  return 2;
} catch (const std::bad_alloc&) {
  stop_without_memory("HDF5");
}
