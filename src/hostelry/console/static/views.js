// The console's views, in the order of the navigation.

import { view as acts } from "./views/acts.js";
import { view as adapters } from "./views/adapters.js";
import { view as call } from "./views/call.js";
import { view as calls } from "./views/calls.js";
import { view as cost } from "./views/cost.js";
import { view as endpoint } from "./views/endpoint.js";
import { view as endpoints } from "./views/endpoints.js";
import { view as failures } from "./views/failures.js";
import { view as fleet } from "./views/fleet.js";
import { view as playground } from "./views/playground.js";

export const VIEWS = [fleet, endpoints, endpoint, calls, call, adapters, playground, failures, cost, acts];
