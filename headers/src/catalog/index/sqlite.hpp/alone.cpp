#include "/work/main/src/catalog/index/sqlite.hpp"
