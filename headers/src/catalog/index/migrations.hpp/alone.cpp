#include "/work/main/src/catalog/index/migrations.hpp"
