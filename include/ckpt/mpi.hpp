#pragma once

// An MPI communicator as the table of ckpt/comm.h: ckpt::Run::open("runs/exp7", {.comm = ckpt::mpi(MPI_COMM_WORLD)}).
//
// Header only, C++17 or later: it is compiled against the trainer's own MPI, so one build of libckpt works with every
// MPI. It makes nonblocking calls only, on a duplicate of the given communicator, with MPI_ERRORS_RETURN (MPI's default
// is to abort the program). All calls come from the thread that calls libckpt: MPI_THREAD_FUNNELED is enough.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "ckpt/comm.h"

namespace ckpt {
inline namespace v1 {
namespace mpi_detail {

// Counts are int in MPI, so a long message is sent in pieces, all in flight at once. Far below the limit, so that
// ordinary tests send pieces too.
inline constexpr std::uint64_t kPieceBytes = std::uint64_t{32} << 20;
// A rank that hangs when the others open or close must not hang them too.
inline constexpr std::chrono::seconds kOpenPatience(1800);
inline constexpr std::chrono::seconds kClosePatience(60);
inline constexpr int kMessageTag = 1;  // of messages between two ranks; the duplicate carries no others

using HostName = std::array<char, MPI_MAX_PROCESSOR_NAME>;

struct MpiRanks {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int ranks = 1;
  int local_ranks = 1;
  std::vector<HostName> hosts{};  // of all ranks, while duplicate() counts those of this host
  bool initialised_here = false;
  bool broken = false;  // a request failed or was abandoned: call nothing that waits for other ranks
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
};

struct Request {
  std::vector<MPI_Request> pieces;
  std::vector<MPI_Datatype> types;  // of the pieces; not every MPI keeps them alive for a collective in flight
};

inline MpiRanks& ranks_of(void* self) {
  return *static_cast<MpiRanks*>(self);
}

/// Starts the pieces of one message with `start(offset, bytes, request)`, which fills request.pieces.back(). Null if a
/// piece cannot be started.
template <class Start>
void* start_pieces(void* self, std::uint64_t bytes, Start start) {
  auto request = std::unique_ptr<Request>(new (std::nothrow) Request);
  if (!request) return nullptr;
  std::uint64_t offset = 0;
  do {
    const std::uint64_t piece = std::min(kPieceBytes, bytes - offset);
    request->pieces.push_back(MPI_REQUEST_NULL);
    if (start(offset, static_cast<int>(piece), *request) != MPI_SUCCESS) {
      ranks_of(self).broken = true;
      static_cast<void>(request.release());  // earlier pieces may be in flight: MPI still uses the request
      return nullptr;
    }
    offset += piece;
  } while (offset < bytes);
  return request.release();
}

inline void* start_max(void* self, std::uint64_t* values, std::uint64_t count) {
  return start_pieces(self, count * sizeof *values, [&](std::uint64_t offset, int bytes, Request& request) {
    return MPI_Iallreduce(MPI_IN_PLACE, values + offset / sizeof *values, bytes / static_cast<int>(sizeof *values),
                          MPI_UINT64_T, MPI_MAX, ranks_of(self).comm, &request.pieces.back());
  });
}

inline void* start_gather(void* self, const void* data, std::uint64_t bytes, void* out) {
  return start_pieces(self, bytes, [&](std::uint64_t offset, int piece_bytes, Request& request) {
    const MpiRanks& mine = ranks_of(self);
    const auto* send = static_cast<const char*>(data) + offset;
    MPI_Request* piece = &request.pieces.back();
    if (mine.rank != 0) {
      return MPI_Igather(send, piece_bytes, MPI_BYTE, nullptr, 0, MPI_BYTE, 0, mine.comm, piece);
    }
    // The messages of the ranks are `bytes` apart in `out`; this piece is a part of each.
    MPI_Datatype part = MPI_DATATYPE_NULL;
    MPI_Datatype spaced = MPI_DATATYPE_NULL;
    int error = MPI_Type_contiguous(piece_bytes, MPI_BYTE, &part);
    if (error != MPI_SUCCESS) return error;
    error = MPI_Type_create_resized(part, 0, static_cast<MPI_Aint>(bytes), &spaced);
    MPI_Type_free(&part);
    if (error != MPI_SUCCESS) return error;
    request.types.push_back(spaced);
    error = MPI_Type_commit(&request.types.back());
    if (error != MPI_SUCCESS) return error;
    return MPI_Igather(send, piece_bytes, MPI_BYTE, static_cast<char*>(out) + offset, 1, request.types.back(), 0,
                       mine.comm, piece);
  });
}

inline void* start_broadcast(void* self, void* data, std::uint64_t bytes) {
  return start_pieces(self, bytes, [&](std::uint64_t offset, int piece_bytes, Request& request) {
    return MPI_Ibcast(static_cast<char*>(data) + offset, piece_bytes, MPI_BYTE, 0, ranks_of(self).comm,
                      &request.pieces.back());
  });
}

inline void* start_send(void* self, const void* data, std::uint64_t bytes, int to) {
  return start_pieces(self, bytes, [&](std::uint64_t offset, int piece_bytes, Request& request) {
    return MPI_Isend(static_cast<const char*>(data) + offset, piece_bytes, MPI_BYTE, to, kMessageTag,
                     ranks_of(self).comm, &request.pieces.back());
  });
}

inline void* start_receive(void* self, void* data, std::uint64_t bytes, int from) {
  return start_pieces(self, bytes, [&](std::uint64_t offset, int piece_bytes, Request& request) {
    return MPI_Irecv(static_cast<char*>(data) + offset, piece_bytes, MPI_BYTE, from, kMessageTag, ranks_of(self).comm,
                     &request.pieces.back());
  });
}

inline int test(void* self, void* pointer) {
  auto* request = static_cast<Request*>(pointer);
  int done = 0;
  const int error =
      MPI_Testall(static_cast<int>(request->pieces.size()), request->pieces.data(), &done, MPI_STATUSES_IGNORE);
  if (error == MPI_SUCCESS && done == 0) return 0;
  for (MPI_Datatype& type : request->types) MPI_Type_free(&type);
  delete request;
  if (error == MPI_SUCCESS) return 1;
  ranks_of(self).broken = true;
  return -1;
}

inline void abandon(void* self, void* request) {
  // MPI cannot cancel a collective or a send. The request stays allocated until the process ends.
  static_cast<void>(request);
  ranks_of(self).broken = true;
}

/// Waits for a request that other ranks must join. False if it fails, or is not done within `patience`.
inline bool wait(MPI_Request request, std::chrono::seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  int done = 0;
  while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
    if (done != 0) return true;
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return false;
}

inline void close(void* self) {
  const std::unique_ptr<MpiRanks> mine(&ranks_of(self));
  int finalized = 0;
  MPI_Finalized(&finalized);
  // MPI_Comm_free and MPI_Finalize wait for all ranks: if one is lost, forever.
  if (finalized != 0 || mine->broken) return;
  MPI_Request all_here = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(mine->comm, &all_here) != MPI_SUCCESS || !wait(all_here, kClosePatience)) return;
  MPI_Comm_free(&mine->comm);
  if (mine->initialised_here) MPI_Finalize();
}

/// Duplicates `comm` and counts the ranks of this host. Collective. False if MPI fails or a rank does not join within
/// `patience`; the caller must then keep `mine` alive, as MPI may still write to it.
inline bool duplicate(MPI_Comm comm, MpiRanks& mine, std::chrono::seconds patience = kOpenPatience) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Comm_idup(comm, &mine.comm, &request) != MPI_SUCCESS || !wait(request, patience)) return false;
  if (MPI_Comm_set_errhandler(mine.comm, MPI_ERRORS_RETURN) != MPI_SUCCESS) return false;
  if (MPI_Comm_rank(mine.comm, &mine.rank) != MPI_SUCCESS) return false;
  if (MPI_Comm_size(mine.comm, &mine.ranks) != MPI_SUCCESS) return false;
  mine.hosts.resize(static_cast<std::size_t>(mine.ranks));
  HostName host{};
  int length = 0;
  if (MPI_Get_processor_name(host.data(), &length) != MPI_SUCCESS) return false;
  mine.hosts[static_cast<std::size_t>(mine.rank)] = host;
  if (MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, mine.hosts.data(), sizeof(HostName), MPI_CHAR, mine.comm,
                     &request) != MPI_SUCCESS ||
      !wait(request, patience))
    return false;
  mine.local_ranks = static_cast<int>(std::count(mine.hosts.begin(), mine.hosts.end(), host));
  mine.hosts = {};
  MPI_Get_library_version(mine.library, &length);
  // "Open MPI v4.1.4, package: ..., 2022": keep the part before the first comma or line break.
  *std::find_if(mine.library, mine.library + length, [](char c) { return c == ',' || c == '\n'; }) = '\0';
  return true;
}

inline ckpt_comm_table table_of(std::unique_ptr<MpiRanks> mine) {
  ckpt_comm_table table{};
  table.size = sizeof(ckpt_comm_table);
  table.self = mine.release();
  table.rank = [](void* self) { return ranks_of(self).rank; };
  table.ranks = [](void* self) { return ranks_of(self).ranks; };
  table.local_ranks = [](void* self) { return ranks_of(self).local_ranks; };
  table.start_max = start_max;
  table.start_gather = start_gather;
  table.start_broadcast = start_broadcast;
  table.test = test;
  table.abandon = abandon;
  table.library = [](void* self) { return static_cast<const char*>(ranks_of(self).library); };
  table.close = close;
  table.start_send = start_send;
  table.start_receive = start_receive;
  return table;
}

}  // namespace mpi_detail

/// A table of the ranks of `comm`, for Run::open, which takes ownership of it and closes it. Call it after MPI_Init,
/// and close the run before MPI_Finalize. If MPI fails, the `size` of the table is 0 and Run::open fails with 2.
/// Collective.
inline ckpt_comm_table mpi(MPI_Comm comm) {
  auto mine = std::unique_ptr<mpi_detail::MpiRanks>(new (std::nothrow) mpi_detail::MpiRanks);
  if (!mine) return ckpt_comm_table{};
  if (!mpi_detail::duplicate(comm, *mine)) {
    static_cast<void>(mine.release());
    return ckpt_comm_table{};
  }
  return mpi_detail::table_of(std::move(mine));
}

}  // namespace v1
}  // namespace ckpt
