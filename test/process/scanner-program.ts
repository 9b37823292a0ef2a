/** Stands in for the binary's hidden subcommand that reads markers. */
import { scanMarkers } from "../../src/process/markers.ts";

scanMarkers(process.argv.slice(2));
