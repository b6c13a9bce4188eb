#include "/work/main/src/writers/commit_disk.hpp"
