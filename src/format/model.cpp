#include "format/model.hpp"
