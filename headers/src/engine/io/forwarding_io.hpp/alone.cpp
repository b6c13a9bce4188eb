#include "/work/main/src/engine/io/forwarding_io.hpp"
