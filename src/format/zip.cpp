#include "format/zip.hpp"
