// Every table of measured figures is sorted by the heading that is pressed.

import { sortable } from "./sorting.js";

for (const table of document.querySelectorAll("article table")) if (table.tHead) sortable(table);
