#include "/work/main/src/convert/hdf5/helper.hpp"
