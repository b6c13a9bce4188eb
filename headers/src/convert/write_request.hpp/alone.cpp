#include "/work/main/src/convert/write_request.hpp"
