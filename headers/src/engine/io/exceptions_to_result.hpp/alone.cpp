#include "/work/main/src/engine/io/exceptions_to_result.hpp"
