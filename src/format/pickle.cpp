#include "format/pickle.hpp"
