#include "/work/main/src/engine/offload/offload_impl.hpp"
