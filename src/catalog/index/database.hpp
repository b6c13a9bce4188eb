#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "format/result.hpp"

namespace SQLite {
class Database;
class Statement;
}  // namespace SQLite

namespace ckpt::catalog {

/// The tables of schemas/catalog, in a file or in memory. One thread.
class Database {
 public:
  struct Options {
    bool shared = false;                       ///< the file system is one of several hosts: a rollback journal, not WAL
    std::chrono::milliseconds patience{2000};  ///< for other processes that write
    bool make = true;                          ///< false: a missing file is an error
  };
  /// Opens or creates the file, and migrates its tables to this release.
  /// errors  unsupported: it is another program's, and is not changed; newer: its tables are of a
  ///         later release; corrupt; locked; no_space; io: it cannot be created, opened or
  ///         written
  static Result<Database> open(const std::string& file, const Options& options);
  /// A database in memory, which is deleted with this object.
  static Result<Database> in_memory();

  Database(Database&&) noexcept;
  Database& operator=(Database&&) noexcept;
  ~Database();

  /// Its file, or ":memory:".
  const std::string& file() const { return file_; }
  bool is_file() const;
  SQLite::Database& sqlite() { return *sqlite_; }
  /// A statement without a result, compiled once, without values yet. For use inside `asked`.
  SQLite::Statement& prepared(const std::string& words);

  /// SQLite's own check of the whole file.
  /// errors  corrupt: its finding; locked, io
  Result<> check();

 private:
  Database(std::string file, std::unique_ptr<SQLite::Database> sqlite);
  static Result<Database> prepare(const std::string& file, const Options& options);

  std::string file_;
  std::unique_ptr<SQLite::Database> sqlite_;
  struct Prepared;
  std::unique_ptr<Prepared> prepared_;  // last: its statements end before the database
};

}  // namespace ckpt::catalog
