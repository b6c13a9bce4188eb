#include "catalog/index/database.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <map>
#include <utility>

#include "catalog/index/migrations.hpp"
#include "catalog/index/sqlite.hpp"
#include "engine/io/io.hpp"
#include "engine/io/real_path.hpp"

namespace ckpt::catalog {
namespace {

constexpr const char* kMemory = ":memory:";

int version_of(SQLite::Database& database) {
  return database.execAndGet("PRAGMA user_version").getInt();
}

constexpr int kApplicationId = 0x636b7074;  // "ckpt", in the file's header

int application_of(SQLite::Database& database) {
  return database.execAndGet("PRAGMA application_id").getInt();
}

/// If it is read-only it is used unchanged: its tables can be read.
void mark_ours(SQLite::Database& database) {
  if (application_of(database) == kApplicationId) return;
  static_cast<void>(database.tryExec(fmt::format("PRAGMA application_id={}", kApplicationId)));
}

/// Whether the tables are ours to change: marked so, or, from before they were, of the names that ours have; or there
/// are none yet.
Result<> check_ours(SQLite::Database& database, const std::string& file) {
  const int application = application_of(database);
  if (application == kApplicationId) return {};
  const auto tables_like = [&](const char* names) {
    return database
        .execAndGet(fmt::format("SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'{}", names))
        .getInt();
  };
  const bool is_empty = version_of(database) == 0 && tables_like("") == 0;
  const bool is_older = version_of(database) > 0 && tables_like(" AND name IN ('runs', 'checkpoints', 'marks')") == 3;
  if (application == 0 && (is_empty || is_older)) return {};
  return fail({.code = Errc::unsupported,
               .message = file + ": this database belongs to another program and was not changed",
               .file = file,
               .hint = "move it out of .ckpt"});
}

/// Each migration in a separate transaction; another process may run the same one now.
Result<> migrate(SQLite::Database& database, const std::string& file) {
  const auto newest = static_cast<int>(migrations().size());
  if (version_of(database) == newest) {
    mark_ours(database);
    return {};
  }
  SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
  const int version = version_of(database);
  if (version > newest || version < 0)
    return fail({.code = Errc::newer,
                 .message = fmt::format("{}: schema version {}; this release supports {}", file, version, newest),
                 .file = file});
  for (int next = version; next < newest; ++next)
    database.exec(std::string(migrations()[static_cast<std::size_t>(next)]));
  database.exec(fmt::format("PRAGMA user_version={}", newest));
  mark_ours(database);
  transaction.commit();
  return {};
}

}  // namespace

Errc sqlite_code(int code) {
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return Errc::locked;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
      return Errc::corrupt;
    case SQLITE_FULL:
      return Errc::no_space;
    case SQLITE_NOMEM:
      return Errc::memory;
    case SQLITE_ERROR:
    case SQLITE_SCHEMA:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
      return Errc::corrupt;  // our own statements fit our own tables: another program changed them
    default:
      return Errc::io;
  }
}

struct Database::Prepared {
  std::map<std::string, std::unique_ptr<SQLite::Statement>> statements{};  ///< by their words
};

Database::Database(std::string file, std::unique_ptr<SQLite::Database> sqlite)
    : file_(std::move(file)), sqlite_(std::move(sqlite)), prepared_(std::make_unique<Prepared>()) {}
Database::Database(Database&&) noexcept = default;
Database& Database::operator=(Database&&) noexcept = default;
Database::~Database() = default;

Result<Database> Database::prepare(const std::string& file, const Options& options) {
  // One thread at a time: SQLite need not lock for every column that is read.
  // It follows no link, in no part of the path: it gets one without.
  const std::string directory = parent_path(file);
  const std::string path =
      file == kMemory ? file : join_path(real_path(directory).value_or(directory), base_name(file));
  auto sqlite = std::make_unique<SQLite::Database>(
      path,
      SQLite::OPEN_READWRITE | SQLite::OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | (options.make ? SQLITE_OPEN_CREATE : 0),
      static_cast<int>(options.patience.count()));
  sqlite->exec("PRAGMA foreign_keys=ON");
  sqlite->exec("PRAGMA trusted_schema=OFF");
  CKPT_CHECK(check_ours(*sqlite, file));
  if (file == kMemory) {
    sqlite->exec("PRAGMA synchronous=OFF");
  } else {
    // Asking for the mode that a file has already writes nothing.
    sqlite->exec(options.shared ? "PRAGMA journal_mode=DELETE" : "PRAGMA journal_mode=WAL");
    sqlite->exec("PRAGMA synchronous=NORMAL");
  }
  CKPT_CHECK(migrate(*sqlite, file));
  return Database(file, std::move(sqlite));
}

Result<Database> Database::open(const std::string& file, const Options& options) {
  return asked(file, [&] { return prepare(file, options); });
}

Result<Database> Database::in_memory() {
  return asked(kMemory, [&] { return prepare(kMemory, Options{}); });
}

bool Database::is_file() const {
  return file_ != kMemory;
}

SQLite::Statement& Database::prepared(const std::string& words) {
  std::unique_ptr<SQLite::Statement>& statement = prepared_->statements[words];
  if (!statement) statement = std::make_unique<SQLite::Statement>(*sqlite_, words);
  statement->reset();
  statement->clearBindings();
  return *statement;
}

Result<> Database::check() {
  return asked(file_, [&]() -> Result<> {
    SQLite::Statement statement(*sqlite_, "PRAGMA integrity_check(10)");
    if (!statement.executeStep()) return {};
    const std::string said = statement.getColumn(0).getString();
    if (said == "ok") return {};
    return fail({.code = Errc::corrupt, .message = file_ + ": " + said, .file = file_});
  });
}

}  // namespace ckpt::catalog
