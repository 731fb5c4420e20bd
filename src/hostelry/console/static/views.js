// The console's views, in the order of the navigation.

import { view as acts } from "./views/acts.js";
import { view as fleet } from "./views/fleet.js";

export const VIEWS = [fleet, acts];
