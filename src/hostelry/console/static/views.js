// The console's views, in the order of the navigation.

import { view as acts } from "./views/acts.js";
import { view as adapters } from "./views/adapters.js";
import { view as fleet } from "./views/fleet.js";
import { view as playground } from "./views/playground.js";

export const VIEWS = [fleet, adapters, playground, acts];
