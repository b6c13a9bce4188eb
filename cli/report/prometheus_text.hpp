#pragma once

#include <string>

#include "api/catalog/store_catalog.hpp"

namespace ckpt::cli {

/// The status of a store in Prometheus' text format.
std::string prometheus_text(const StoreStatus& status);

}  // namespace ckpt::cli
