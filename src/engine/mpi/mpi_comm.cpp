// The table of engine/comm.hpp over MPI. Every collective is a nonblocking one on a duplicate of MPI_COMM_WORLD, whose
// errors are returned; MPI's own default is to abort the program.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "engine/comm.hpp"

namespace {

// Counts are int in MPI. A long message is cut into pieces, which are all in flight together; far below the limit, so
// that messages of ordinary tests are cut too.
constexpr std::uint64_t kPieceBytes = std::uint64_t{32} << 20;

struct World {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int ranks = 1;
  int local_ranks = 1;
  bool initialised_here = false;
  bool broken = false;  // a request failed or was given up: nothing that waits for other ranks may be called
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
};

struct Request {
  std::vector<MPI_Request> pieces;
  std::vector<MPI_Datatype> types;  // of the pieces; not every MPI keeps them alive for a collective in flight
};

World& world(void* self) {
  return *static_cast<World*>(self);
}

/// Starts the pieces of one message by `start(offset, bytes, request)`, each as the last of the request's; null when
/// one cannot be started.
template <class Start>
void* start_pieces(void* self, std::uint64_t bytes, Start start) {
  auto request = std::unique_ptr<Request>(new (std::nothrow) Request);
  if (!request) return nullptr;
  std::uint64_t offset = 0;
  do {
    const std::uint64_t piece = std::min(kPieceBytes, bytes - offset);
    request->pieces.push_back(MPI_REQUEST_NULL);
    if (start(offset, static_cast<int>(piece), *request) != MPI_SUCCESS) {
      world(self).broken = true;
      static_cast<void>(request.release());  // earlier pieces may be in flight: MPI keeps what it was given
      return nullptr;
    }
    offset += piece;
  } while (offset < bytes);
  return request.release();
}

void* start_max(void* self, std::uint64_t* values, std::uint64_t count) {
  return start_pieces(self, count * sizeof *values, [&](std::uint64_t offset, int bytes, Request& request) {
    return MPI_Iallreduce(MPI_IN_PLACE, values + offset / sizeof *values, bytes / static_cast<int>(sizeof *values),
                          MPI_UINT64_T, MPI_MAX, world(self).comm, &request.pieces.back());
  });
}

void* start_gather(void* self, const void* data, std::uint64_t bytes, void* out) {
  return start_pieces(self, bytes, [&](std::uint64_t offset, int piece_bytes, Request& request) {
    const World& mine = world(self);
    const auto* send = static_cast<const char*>(data) + offset;
    MPI_Request* piece = &request.pieces.back();
    if (mine.rank != 0) {
      return MPI_Igather(send, piece_bytes, MPI_BYTE, nullptr, 0, MPI_BYTE, 0, mine.comm, piece);
    }
    // Ranks' messages lie `bytes` apart, whatever part of them this piece is.
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

void* start_broadcast(void* self, void* data, std::uint64_t bytes) {
  return start_pieces(self, bytes, [&](std::uint64_t offset, int piece_bytes, Request& request) {
    return MPI_Ibcast(static_cast<char*>(data) + offset, piece_bytes, MPI_BYTE, 0, world(self).comm,
                      &request.pieces.back());
  });
}

int test(void* self, void* pointer) {
  auto* request = static_cast<Request*>(pointer);
  int done = 0;
  const int error =
      MPI_Testall(static_cast<int>(request->pieces.size()), request->pieces.data(), &done, MPI_STATUSES_IGNORE);
  if (error == MPI_SUCCESS && done == 0) return 0;
  for (MPI_Datatype& type : request->types) MPI_Type_free(&type);
  delete request;
  if (error == MPI_SUCCESS) return 1;
  world(self).broken = true;
  return -1;
}

void abandon(void* self, void* request) {
  // MPI cannot cancel a collective. The request stays for it to find, until the process ends.
  static_cast<void>(request);
  world(self).broken = true;
}

void close(void* self) {
  const std::unique_ptr<World> mine(&world(self));
  int finalized = 0;
  MPI_Finalized(&finalized);
  // Freeing and finalizing wait for the other ranks: with one of them gone that never ends.
  if (finalized != 0 || mine->broken) return;
  MPI_Comm_free(&mine->comm);
  if (mine->initialised_here) MPI_Finalize();
}

int open_world(World& mine) {
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised == 0) {
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return 1;
    mine.initialised_here = true;
  }
  if (MPI_Comm_dup(MPI_COMM_WORLD, &mine.comm) != MPI_SUCCESS) return 1;
  if (MPI_Comm_set_errhandler(mine.comm, MPI_ERRORS_RETURN) != MPI_SUCCESS) return 1;
  if (MPI_Comm_rank(mine.comm, &mine.rank) != MPI_SUCCESS) return 1;
  if (MPI_Comm_size(mine.comm, &mine.ranks) != MPI_SUCCESS) return 1;
  MPI_Comm node = MPI_COMM_NULL;
  if (MPI_Comm_split_type(mine.comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) != MPI_SUCCESS) return 1;
  MPI_Comm_size(node, &mine.local_ranks);
  MPI_Comm_free(&node);
  int length = 0;
  MPI_Get_library_version(mine.library, &length);
  // "Open MPI v4.1.4, package: ..., 2022": up to the first comma or line break it is a name.
  *std::find_if(mine.library, mine.library + length, [](char c) { return c == ',' || c == '\n'; }) = '\0';
  return 0;
}

}  // namespace

/// Initialises MPI where the program has not, and fills `table`. 0 on success. Collective.
extern "C" __attribute__((visibility("default"))) int ckpt_mpi_open(ckpt_comm_table* table) {
  auto mine = std::unique_ptr<World>(new (std::nothrow) World);
  if (!mine || open_world(*mine) != 0) return 1;
  *table = {
      .size = sizeof(ckpt_comm_table),
      .self = mine.release(),
      .rank = [](void* self) { return world(self).rank; },
      .ranks = [](void* self) { return world(self).ranks; },
      .local_ranks = [](void* self) { return world(self).local_ranks; },
      .start_max = start_max,
      .start_gather = start_gather,
      .start_broadcast = start_broadcast,
      .test = test,
      .abandon = abandon,
      .library = [](void* self) { return static_cast<const char*>(world(self).library); },
      .close = close,
  };
  return 0;
}
