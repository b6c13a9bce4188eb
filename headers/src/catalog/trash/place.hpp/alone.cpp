#include "/work/main/src/catalog/trash/place.hpp"
