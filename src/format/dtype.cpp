#include "format/dtype.hpp"
