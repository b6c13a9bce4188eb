#include "cli/report/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "cli/output/paragraph.hpp"

namespace ckpt::cli {
namespace {

/// "7 B", or "1288490188 (1.20 GiB)".
std::string offset_text(std::uint64_t offset, SizeStyle sizes) {
  return offset < 1024 ? fmt::format("{} B", offset) : fmt::format("{} ({})", offset, format_size(offset, sizes));
}

/// Whether the remedy of `explain` helps when an error has no hint: "no such file" needs none.
bool has_general_hint(Errc code) {
  return code != Errc::usage && code != Errc::not_found;
}

}  // namespace

Explanation explain(Errc code) {
  switch (code) {
    case Errc::differs:
      return {"the contents differ, or damage was found",
              "The check ran and the answer is no: verify found a wrong checksum, a missing part, or a tensor that is "
              "not bitwise equal.",
              "The report names each file and tensor. Convert again from the source, or go back to an older "
              "checkpoint that verifies."};
    case Errc::usage:
      return {"wrong command line", "A command, an option or a value is unknown, missing or contradictory.",
              "'ckpt help COMMAND' lists the options of a command."};
    case Errc::target_exists:
      return {"the target exists",
              "ckpt does not replace existing files without --overwrite. A target made by the same conversion would "
              "have been reported as 'already done'.",
              "Choose another target, or add --overwrite: it replaces a file, or a directory that holds a checkpoint "
              "and nothing else and that no process is reading."};
    case Errc::mpi_launch:
      return {"the MPI launch does not fit",
              "The environment announces several ranks, but they cannot be reached: the plug-in libckpt_mpi.so or its "
              "MPI library is missing, or a different MPI started the program. Continuing would run every rank as if "
              "it were alone.",
              "Start with the mpirun or srun of the MPI that the plug-in was built with, or add --no-mpi to run "
              "without MPI."};
    case Errc::not_done:
      return {"not everything requested was done",
              "The conversion finished, but an item named on the command line is not in the result.",
              "The warnings name the item and the reason."};
    case Errc::guarded:
      return {
          "a guard stopped the prune",
          "A new or changed policy would delete more than its limit allows, or a rule names a metric that no checkpoint "
          "has. Nothing was deleted under this policy.",
          "Review the plan with 'ckpt prune', then approve it once with --apply -y, or correct the policy."};
    case Errc::not_found:
      return {"not found", "There is no such checkpoint, file or tensor.",
              "Check the path. 'ckpt list' shows the checkpoints of a store, 'ckpt ls' the tensors of a checkpoint."};
    case Errc::locked:
      return {"in use by another process",
              "A checkpoint being written is locked by its writer, one being read by its readers.",
              "Retry when the other process has finished."};
    case Errc::changed:
      return {"the source changed while it was read",
              "A source file was replaced, removed or modified while the command was reading it, so its data no "
              "longer matches its header.",
              "Nothing was published. Retry when nothing writes to the source; convert a finished step, not a file "
              "that the trainer keeps replacing."};
    case Errc::unsupported:
      return {"not recognised, or not supported",
              "File names and first bytes match no format that this build can read.",
              "'ckpt help formats' lists the formats that can be read and written. If you know the format, add --from "
              "FORMAT."};
    case Errc::newer:
      return {"written by a newer release", "The checkpoint needs a feature that this build does not have.",
              "Use the release that the message names, or a later one."};
    case Errc::ambiguous:
      return {"more than one format matches", "The directory contains files of several formats.",
              "Choose with --from FORMAT, or name the sub-directory."};
    case Errc::incomplete:
      return {"files are missing",
              "The checkpoint's metadata lists files that are missing: a rank did not finish, or a copy was cut short.",
              "Restore the missing files, which are listed, or use an older checkpoint."};
    case Errc::uncommitted:
      return {"the save never finished", "The writer died before it committed the checkpoint.",
              "Use an older checkpoint."};
    case Errc::no_space:
      return {"no space left",
              "The file system has no space, inodes or quota for the result. Where the file system reports it, ckpt "
              "finds out before it writes anything.",
              "Free the amount that the message names, or choose another target. --only weights needs less."};
    case Errc::corrupt:
      return {"invalid data",
              "A header, an index or a length is invalid: the file was truncated, overwritten or damaged.",
              "Copy the file again from its source, or use an older checkpoint."};
    case Errc::uncovered:
      return {"part of a tensor is missing", "The pieces of the tensor in the files do not add up to its shape.",
              "A rank's file is missing or belongs to another save. The missing values cannot be restored."};
    case Errc::overlap:
      return {"two files hold conflicting parts of a tensor",
              "Two files claim overlapping, different regions of one tensor, so neither can be trusted.",
              "Files of two saves are mixed in one directory; separate them."};
    case Errc::checksum:
      return {"checksum mismatch", "The bytes differ from the bytes that were written.",
              "Copy the file again from its source, or use an older checkpoint that verifies. If fresh copies fail "
              "too, test the machine's disk and memory."};
    case Errc::refused:
      return {"hostile content refused",
              "The file requests something that no checkpoint needs: a pickle that names a dangerous function, a path "
              "that leaves the directory, an absurd size. None of it was executed.",
              "Do not open this file with a tool that runs pickles. Ask its author where it comes from."};
    case Errc::linked:
      return {"symbolic link where ckpt must write",
              "ckpt reads checkpoints through symbolic links but does not write, move or remove files through one: the "
              "target may belong to someone else. Nothing behind the link was changed.",
              "Replace the link with its target, or remove the link."};
    case Errc::io:
      return {"read or write error", "The kernel reported an error: a disk, a network mount, permissions.",
              "The message quotes the system error. For 'Permission denied', run as a user who can read the source and "
              "write beside the target. If a mount was temporarily lost, retry."};
    case Errc::peer_failed:
      return {"another rank failed or was lost",
              "This rank had no error, but another rank failed, so all ranks stopped.",
              "Look for the first error in the job's log; a killed rank may have logged nothing (out of memory?)."};
    case Errc::not_durable:
      return {"visible, possibly not durable",
              "The result has its final name, but the last sync failed; a power loss could still undo it.",
              "Check the disk, then 'ckpt verify' the result; convert again if in doubt."};
    case Errc::memory:
      return {"does not fit in the memory limit",
              "The checkpoint's metadata and the smallest set of buffers need more than --memory allows.",
              "Raise --memory to the size in the message."};
    case Errc::internal:
      return {"internal error in ckpt", "An internal invariant does not hold. The data is not at fault.",
              "Please report the message, the command line and 'ckpt version --json'."};
    case Errc::interrupted:
      return {"interrupted", "SIGINT (Ctrl-C) was received, or the caller requested a stop.",
              "Run the same command again. A conversion or save resumes where it stopped; nothing was published."};
    case Errc::terminated:
      return {"terminated", "SIGTERM was received, from a scheduler's time limit or a shutdown.",
              "Run the same command again. A conversion or save resumes where it stopped; nothing was published."};
  }
  return {"unknown", "", ""};
}

const std::vector<Errc>& all_codes() {
  static const std::vector<Errc> codes{
      Errc::differs,    Errc::usage,       Errc::target_exists, Errc::mpi_launch,  Errc::not_done,    Errc::guarded,
      Errc::not_found,  Errc::locked,      Errc::changed,       Errc::unsupported, Errc::newer,       Errc::ambiguous,
      Errc::incomplete, Errc::uncommitted, Errc::no_space,      Errc::corrupt,     Errc::uncovered,   Errc::overlap,
      Errc::checksum,   Errc::refused,     Errc::linked,        Errc::io,          Errc::peer_failed, Errc::not_durable,
      Errc::memory,     Errc::internal,    Errc::interrupted,   Errc::terminated};
  return codes;
}

std::string error_id(Errc code) {
  return fmt::format("CKPT-E{}", static_cast<int>(code));
}

std::optional<Errc> code_of(std::string_view id) {
  std::string text;
  for (const char c : id) text.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  std::string_view rest = text;
  if (rest.starts_with("CKPT-")) rest.remove_prefix(5);
  if (rest.starts_with("E")) rest.remove_prefix(1);
  const auto found =
      std::ranges::find_if(all_codes(), [&](Errc code) { return fmt::format("{}", static_cast<int>(code)) == rest; });
  if (found == all_codes().end()) return std::nullopt;
  return *found;
}

std::vector<std::string> error_lines(const Failure& failure, SizeStyle sizes, const Console* console) {
  const auto paint = [&](Ink ink, std::string_view text) {
    return console != nullptr ? console->paint_err(ink, text) : std::string(text);
  };
  const Error& error = failure.error;
  std::vector<std::string> out;
  out.push_back(fmt::format("{} {}", paint(Ink::red, "error:"), printable(error.message)));
  const auto field = [&](std::string_view name, const std::string& text) {
    out.push_back(fmt::format("  {:<8} {}", name, text));
  };
  if (error.code != Errc::usage) {
    if (!error.tensor.empty()) field("tensor", printable(error.tensor));
    if (!error.file.empty() && (error.offset || !error.message.starts_with(error.file)))
      field("file", printable(error.file) + (error.offset ? "   offset " + offset_text(*error.offset, sizes) : ""));
    if (failure.rank >= 0)
      field("rank", fmt::format("{}{}", failure.rank, failure.node.empty() ? "" : " on " + failure.node));
    if (!failure.effect.empty()) field("effect", printable(failure.effect));
  }
  const std::string hint = paint(Ink::bold, "hint:");
  if (!error.hint.empty()) {
    for (std::string_view rest = error.hint; !rest.empty();) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      out.push_back(fmt::format("{} {}", hint, printable(rest.substr(0, end))));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  } else if (const std::string_view remedy = explain(error.code).remedy; has_general_hint(error.code)) {
    constexpr std::size_t kColumn = 6;  // after "hint: "
    constexpr std::size_t kWidth = 100;
    const std::string text = wrapped(remedy, kColumn, kWidth);
    for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
      end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      out.push_back(at == 0 ? hint + line.substr(kColumn - 1) : line);
    }
  }
  return out;
}

std::string explain_line(Errc code) {
  return fmt::format("exit {} · ckpt explain {}", exit_code(code), error_id(code).substr(5));
}

bool needs_explaining(Errc code) {
  constexpr std::array<int, 3> codes{15, 16, 70};
  return std::ranges::find(codes, exit_code(code)) != codes.end() || code == Errc::mpi_launch || code == Errc::changed;
}

std::string stray_line(const Error& error, int rank, std::string_view node) {
  constexpr std::size_t most_bytes = 500;
  std::string line = fmt::format("[rank {} on {}] error: {}", rank, node, printable(error.message));
  if (line.size() > most_bytes) line.resize(most_bytes);
  return line;
}

}  // namespace ckpt::cli
