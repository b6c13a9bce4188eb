#include "/work/main/src/format/text/error_context.hpp"
