#include "/work/main/src/api/verbs.hpp"
