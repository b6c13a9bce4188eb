#pragma once

#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <SQLiteCpp/Statement.h>
#include <SQLiteCpp/Transaction.h>
#include <sqlite3.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "catalog/bucket.hpp"
#include "catalog/scan/entry.hpp"
#include "engine/io/exceptions_to_result.hpp"
#include "format/result.hpp"

/// SQLite's exceptions stop here: everything of src/catalog/index that touches a database runs inside `asked`.
namespace ckpt::catalog {

/// locked: another process holds it; corrupt: not a database, or a damaged one; no_space; newer: it cannot be read with
/// these tables; io: all else.
Errc sqlite_code(int code);

/// Runs `body`, which returns a Result, and turns SQLite's exceptions into an error about `file`.
template <class Body>
auto asked(const std::string& file, Body&& body) -> decltype(body()) {
  return exceptions_to_result([&]() -> decltype(body()) {
    try {
      return body();
    } catch (const SQLite::Exception& error) {
      return fail({.code = sqlite_code(error.getErrorCode()), .message = file + ": " + error.what(), .file = file});
    }
  });
}

/// While it exists, all statements read the tables as they were at the first of them, whatever other processes write.
/// Part of the transaction where there is one. To be made in `asked`, before the statements.
class Snapshot {
 public:
  explicit Snapshot(SQLite::Database& database) : database_(database), is_own_(is_outside_transactions(database)) {
    if (is_own_) database_.exec("BEGIN");
  }
  ~Snapshot() {
    if (is_own_) static_cast<void>(database_.tryExec("ROLLBACK"));  // nothing was written
  }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

 private:
  static bool is_outside_transactions(SQLite::Database& database) {
    return sqlite3_get_autocommit(database.getHandle()) != 0;
  }

  SQLite::Database& database_;
  const bool is_own_;
};

/// Binds values in order to ?1, ?2, ...
class Binder {
 public:
  explicit Binder(SQLite::Statement& statement) : statement_(statement) {}
  Binder& add(const std::string& text) {
    statement_.bind(++index_, text);
    return *this;
  }
  Binder& add(std::int64_t value) {
    statement_.bind(++index_, value);
    return *this;
  }
  /// Clamped to SQLite's range.
  Binder& add(std::uint64_t value) { return add(static_cast<std::int64_t>(value > INT64_MAX ? INT64_MAX : value)); }
  Binder& add(bool value) { return add(std::int64_t{value}); }
  Binder& add(double value) {
    statement_.bind(++index_, value);
    return *this;
  }
  /// Inodes are 64 bits wide, and only compared.
  Binder& add(const Stamp& stamp) { return add(static_cast<std::int64_t>(stamp.inode)).add(stamp.mtime_ns); }
  Binder& add(Time time) { return add(std::int64_t{time.time_since_epoch().count()}); }
  template <class T>
  Binder& add(const std::optional<T>& value) {
    if (value) return add(*value);
    statement_.bind(++index_);
    return *this;
  }

 private:
  SQLite::Statement& statement_;
  int index_ = 0;
};

/// Takes the columns of a row in order.
class Columns {
 public:
  explicit Columns(SQLite::Statement& row) : row_(row) {}
  std::string text() { return row_.getColumn(index_++).getString(); }
  std::int64_t integer() { return row_.getColumn(index_++).getInt64(); }
  std::uint64_t natural() {
    const std::int64_t value = integer();
    return value < 0 ? 0 : static_cast<std::uint64_t>(value);
  }
  bool boolean() { return integer() != 0; }
  Time time() { return Time(Duration(integer())); }
  Stamp stamp() {
    const auto inode = static_cast<std::uint64_t>(integer());
    return {.inode = inode, .mtime_ns = integer()};
  }
  std::optional<double> real() {
    const auto column = row_.getColumn(index_++);
    if (column.isNull()) return std::nullopt;
    return column.getDouble();
  }
  /// SQLite has no NaN: NULL is one.
  double number() { return real().value_or(std::numeric_limits<double>::quiet_NaN()); }
  /// One of a later release is unreadable.
  State state() {
    const std::uint64_t value = natural();
    return value > static_cast<std::uint64_t>(State::verified) ? State::unreadable : static_cast<State>(value);
  }
  std::optional<std::uint64_t> optional_natural() {
    if (row_.getColumn(index_).isNull()) {
      ++index_;
      return std::nullopt;
    }
    return natural();
  }
  std::optional<Time> optional_time() {
    if (row_.getColumn(index_).isNull()) {
      ++index_;
      return std::nullopt;
    }
    return time();
  }

 private:
  SQLite::Statement& row_;
  int index_ = 0;
};

}  // namespace ckpt::catalog
