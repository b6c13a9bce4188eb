#include "/work/main/src/engine/io/unique_fd.hpp"
