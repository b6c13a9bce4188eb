#include "/work/main/src/convert/hdf5/wire.hpp"
