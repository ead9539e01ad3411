/* Runs panels' transformations as Grafana does. In: [{frames, transformations}]; out: the frames of each. */
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(import.meta.url);
const data = require("@grafana/data");
const { lastValueFrom } = require("rxjs");
globalThis.window ??= globalThis; // asked whether this is a scene; not before, some packages take it for a browser

// Some transformations are exported under two names.
const known = new Map(Object.values(data.standardTransformers).map((one) => [one.id, one]));
data.standardTransformersRegistry.setInit(() =>
  [...known.values()].map((one) => ({ id: one.id, name: one.name, transformation: async () => one })),
);

const panels = JSON.parse(readFileSync(0, "utf8"));
const results = [];
for (const panel of panels) {
  const frames = panel.frames.map((frame) => data.toDataFrame(frame));
  const transformed = await lastValueFrom(data.transformDataFrame(panel.transformations, frames));
  results.push(
    transformed.map((frame) => ({
      refId: frame.refId ?? "",
      fields: frame.fields.map((field) => ({
        name: field.name,
        title: field.config.displayName ?? data.getFieldDisplayName(field, frame, transformed),
        type: field.type,
        values: Array.from(field.values, (value) => value ?? null),
      })),
    })),
  );
}
process.stdout.write(JSON.stringify(results));
