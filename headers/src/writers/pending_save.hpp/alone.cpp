#include "/work/main/src/writers/pending_save.hpp"
