// Builds ../static from src: one script, one style sheet, one page, and the licences of what is in them.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync, mkdirSync } from "node:fs";
import { build } from "esbuild";

const out = "../static";
mkdirSync(out, { recursive: true });
await build({
  entryPoints: { app: "src/main.jsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022", "chrome110", "firefox115", "safari16"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
});
writeFileSync(`${out}/index.html`, readFileSync("src/index.html"));
writeFileSync(`${out}/favicon.svg`, readFileSync("src/favicon.svg"));
const licences = ["preact", "uplot"].map((name) => {
  const { version, license } = JSON.parse(readFileSync(`node_modules/${name}/package.json`));
  return `${name} ${version} (${license})\n\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim()}\n`;
});
writeFileSync(`${out}/LICENSES.txt`, licences.join("\n----\n\n"));

// A test compares this with the sources, so that nobody forgets to build.
const sources = readdirSync("src", { recursive: true, withFileTypes: true })
  .filter((each) => each.isFile())
  .map((each) => `${each.parentPath}/${each.name}`)
  .sort();
const digest = createHash("sha256");
for (const name of ["package.json", "build.mjs", ...sources])
  digest.update(`${name}\0`).update(readFileSync(name)).update("\0");
writeFileSync(`${out}/sources.sha256`, `${digest.digest("hex")}\n`);
