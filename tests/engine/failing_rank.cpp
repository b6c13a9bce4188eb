// One rank of mpi_comm_test, started by mpirun: opens, uses and closes a communicator again and again, and another of
// the calls of MPI fails each time. Prints how many there were, and what was not told as it should be.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "ckpt/mpi.hpp"
#include "engine/comm/comm.hpp"

namespace {

int calls = 0;
int failing = 0;  // the number of the call that fails; 0: none
bool failed = false;
const char* failed_call = "";

/// The result of a call: an error in its place, or what MPI says.
template <class Call>
int counted(const char* name, Call call) {
  if (++calls != failing) return call();
  failed = true;
  failed_call = name;
  return MPI_ERR_OTHER;
}

}  // namespace

// MPI lets a program define its functions, and calls of its own by other names, in place of the library's.
#define COUNTED(name, parameters, arguments)                      \
  extern "C" int MPI_##name parameters {                          \
    return counted(#name, [&] { return PMPI_##name arguments; }); \
  }
COUNTED(Comm_idup, (MPI_Comm comm, MPI_Comm* out, MPI_Request* request), (comm, out, request))
COUNTED(Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler handler), (comm, handler))
COUNTED(Comm_rank, (MPI_Comm comm, int* rank), (comm, rank))
COUNTED(Comm_size, (MPI_Comm comm, int* size), (comm, size))
COUNTED(Get_processor_name, (char* name, int* length), (name, length))
COUNTED(Get_library_version, (char* version, int* length), (version, length))
COUNTED(Iallgather,
        (const void* in, int count, MPI_Datatype type, void* out, int count_out, MPI_Datatype type_out, MPI_Comm comm,
         MPI_Request* request),
        (in, count, type, out, count_out, type_out, comm, request))
COUNTED(Igather,
        (const void* in, int count, MPI_Datatype type, void* out, int count_out, MPI_Datatype type_out, int root,
         MPI_Comm comm, MPI_Request* request),
        (in, count, type, out, count_out, type_out, root, comm, request))
COUNTED(Iallreduce,
        (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request),
        (in, out, count, type, op, comm, request))
COUNTED(Ibcast, (void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request),
        (data, count, type, root, comm, request))
COUNTED(Ibarrier, (MPI_Comm comm, MPI_Request* request), (comm, request))
COUNTED(Type_contiguous, (int count, MPI_Datatype type, MPI_Datatype* out), (count, type, out))
COUNTED(Type_create_resized, (MPI_Datatype type, MPI_Aint begin, MPI_Aint extent, MPI_Datatype* out),
        (type, begin, extent, out))
COUNTED(Type_commit, (MPI_Datatype * type), (type))
COUNTED(Test, (MPI_Request * request, int* done, MPI_Status* status), (request, done, status))
COUNTED(Testall, (int count, MPI_Request requests[], int* done, MPI_Status statuses[]),
        (count, requests, done, statuses))
COUNTED(Comm_free, (MPI_Comm * comm), (comm))

namespace ckpt {
namespace {

/// What a save does with its ranks.
Result<> use(Comm& comm) {
  const Deadline deadline = comm.now() + std::chrono::seconds(60);
  std::uint64_t value = 3;
  CKPT_CHECK(comm.max({&value, 1}, deadline));
  CKPT_TRY(const auto all, comm.gather("text", deadline));
  if (all.size() != 1 || all[0] != "text") return fail(Errc::internal, "wrong messages");
  std::string text = "text";
  CKPT_CHECK(comm.broadcast(text, deadline));
  return agree(comm, deadline, {});
}

/// What is wrong with the outcome where a call failed while the communicator was opened, or used; "" if nothing is.
std::string judged(bool while_opening, const ckpt_comm_table& table, const Result<>& used) {
  if (while_opening) return table.size == 0 ? "" : "opened";
  if (used) return "used";
  return used.error().code == Errc::peer_failed ? "" : used.error().message;
}

}  // namespace
}  // namespace ckpt

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int wrong = 0;
  int opening = 0;
  int using_it = 0;
  for (failed = true; failed;) {
    failed = false;
    calls = 0;
    ++failing;
    ckpt::Result<> used;
    ckpt_comm_table table = ckpt::mpi(MPI_COMM_WORLD);
    const bool while_opening = failed;
    if (table.size != 0) {
      auto comm = std::make_unique<ckpt::Comm>(table);
      used = ckpt::use(*comm);
      const bool while_closing = !failed;
      comm.reset();
      if (while_closing && used) continue;  // all is done by then: what MPI says of it is not told
    }
    opening += while_opening ? 1 : 0;
    using_it += while_opening ? 0 : 1;
    const std::string what = ckpt::judged(while_opening, table, used);
    if (what.empty() || std::string(failed_call) == "Get_library_version") continue;  // a name that only informs
    std::printf("call %d, %s: %s\n", failing, failed_call, what.c_str());
    ++wrong;
  }
  std::printf("%s: %d calls failed while it opened, %d while it was used\n", wrong == 0 ? "ok" : "wrong", opening,
              using_it);
  failing = 0;
  MPI_Finalize();
  return wrong == 0 && opening > 5 && using_it > 10 ? 0 : 1;
}
