// ckpt-h5: writes the skeleton of an HDF5 file, without the data, and tells where each dataset's bytes belong; tells
// what a file holds, and decodes what does not stand in it as it is.
//
//   ckpt-h5 skeleton FILE   request on standard input, offsets on standard output; FILE is overwritten
//   ckpt-h5 id FILE         prints the root attribute `ckpt_id`
//   ckpt-h5 map FILE OFFSET BYTES                          h5_map.hpp; the HDF5 file is BYTES long, at OFFSET of FILE
//   ckpt-h5 decode FILE OFFSET BYTES TARGET                h5_decode.hpp; writes rows of datasets into TARGET
//
// The request of a skeleton, all numbers little-endian: u32 attribute count, then (text name, text value) each; u32
// dataset count, then each: text path, u8 type, u8 rank, u64 size per dimension, u32 attribute count and (text, text)
// each; u32 link count, then (text new path, text target path) each. A text is u32 length and bytes. The answer: u64
// file size, then per dataset u64 offset (2^64 - 1 where it has no bytes). Datasets are contiguous, allocated early and
// never filled, so the caller writes the bytes itself. No time stamps: equal requests give equal files.
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "helper/h5_decode.hpp"
#include "helper/h5_file.hpp"
#include "helper/h5_map.hpp"
#include "helper/request.hpp"

namespace {

constexpr hsize_t kAlignment = 64;  // of every dataset: a multiple of any element's size

void check(bool good, const std::string& what) {
  if (!good) stop("HDF5: " + what + " failed");
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

void put(std::string& out, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) out += static_cast<char>(value >> (8 * i));
}

int skeleton(const char* name) {
  Input input;
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  check(H5Pset_alignment(access, 1, kAlignment) >= 0 && H5Pset_small_data_block_size(access, 0) >= 0,
        "H5Pset_alignment");
  const hid_t file_create = H5Pcreate(H5P_FILE_CREATE);
  check(H5Pset_obj_track_times(file_create, false) >= 0, "H5Pset_obj_track_times");
  const hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, file_create, access);
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
    if (dataset.bytes != 0 && offset == HADDR_UNDEF) stop("HDF5: a dataset got no place in the file");
    put(answer, offset == HADDR_UNDEF ? ~std::uint64_t{0} : offset);
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
  if (::stat(name, &info) != 0) stop("cannot tell the size of the skeleton");
  std::string head;
  put(head, static_cast<std::uint64_t>(info.st_size));
  answer.insert(0, head);
  for (std::size_t at = 0; at < answer.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, answer.data() + at, answer.size() - at);
    if (written <= 0) stop("cannot answer");
    at += static_cast<std::size_t>(written);
  }
  return 0;
}

int print_id(const char* path) {
  const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file < 0) stop("not an HDF5 file");
  if (H5Aexists(file, "ckpt_id") <= 0) return 0;
  const hid_t attribute = H5Aopen(file, "ckpt_id", H5P_DEFAULT);
  const hid_t type = H5Aget_type(attribute);
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) > 0 || H5Tget_size(type) > 64) return 0;
  std::vector<char> value(H5Tget_size(type) + 1, '\0');
  if (H5Aread(attribute, type, value.data()) < 0) return 0;
  std::fputs(value.data(), stdout);
  return 0;
}

Range range_of(char** argv) {
  return {.path = argv[2], .offset = std::strtoull(argv[3], nullptr, 10), .bytes = std::strtoull(argv[4], nullptr, 10)};
}

/// The processor time that this may take: a file made to exhaust it ends this helper, not the conversion.
void limit_seconds(std::uint64_t bytes) {
  constexpr std::uint64_t kLeastSeconds = 20;
  constexpr std::uint64_t kBytesPerSecond = 10'000'000;  // what the slowest filter decodes on the slowest machine
  const rlim_t limit = kLeastSeconds + bytes / kBytesPerSecond;
  const rlimit seconds{limit, limit + 5};  // SIGXCPU, which says why, before SIGKILL
  ::setrlimit(RLIMIT_CPU, &seconds);
}

int decode_rows(const Range& range, const char* target) {
  Input input;
  limit_seconds(input.number(8));
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
  // A file made to exhaust memory or time ends this helper, not the conversion.
  const std::string_view verb = argc > 1 ? argv[1] : "";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a sanitizer reserves terabytes of addresses
  const std::uint64_t bytes = std::uint64_t{verb == "skeleton" ? 4U : 1U} << 30;
  const rlimit memory{bytes, bytes};
  ::setrlimit(RLIMIT_AS, &memory);
#endif
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  if (argc == 3 && verb == "skeleton") return skeleton(argv[2]);
  limit_seconds(argc > 4 ? range_of(argv).bytes : 0);
  if (argc == 3 && verb == "id") return print_id(argv[2]);
  if (argc == 5 && verb == "map") return print_map(range_of(argv));
  if (argc == 6 && verb == "decode") return decode_rows(range_of(argv), argv[5]);
  std::fputs("usage: ckpt-h5 skeleton FILE | id FILE | map ... | decode ...      (started by ckpt)\n", stderr);
  return 2;
} catch (const std::bad_alloc&) {
  stop("HDF5: this file needs more than 1 GiB of memory");
}
