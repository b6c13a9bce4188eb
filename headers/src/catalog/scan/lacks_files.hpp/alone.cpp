#include "/work/main/src/catalog/scan/lacks_files.hpp"
