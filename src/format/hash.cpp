#include "format/hash.hpp"
