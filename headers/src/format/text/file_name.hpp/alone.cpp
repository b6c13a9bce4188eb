#include "/work/main/src/format/text/file_name.hpp"
