// Compiles dashboards against the types that Grafana publishes: node check.mjs PACKAGES DASHBOARD...
//
// PACKAGES is the folder with node_modules. Each dashboard becomes a TypeScript literal of the type that Grafana's own code has for
// it, so a key that it does not know, or a value of another type, is an error. Panels are checked with the types of their kind. Grafana publishes
// no type for a query of Prometheus; its keys are listed here.
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';

const [packages, ...dashboards] = process.argv.slice(2);
const ts = createRequire(join(resolve(packages), 'package.json'))('typescript');
const folder = mkdtempSync(join(tmpdir(), 'agentmine-dashboards-'));

const HEAD = `
import type { Dashboard, DataQuery, Panel } from '@grafana/schema';
import type { Options as Stat } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { Options as TimeSeries, FieldConfig as TimeSeriesField }
    from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

type Unless<T, K extends PropertyKey> = { [P in keyof T as P extends K ? never : P]: T[P] };
interface Query extends DataQuery { expr: string; legendFormat: string }
type Kind<T extends string, O, F> = Unless<Panel, 'type' | 'options' | 'targets' | 'fieldConfig'> & {
    type: T;
    options: Partial<O>;
    targets: Query[];
    fieldConfig: { defaults: NonNullable<Panel['fieldConfig']>['defaults'] & { custom?: F }; overrides: [] };
};
type AnyPanel = Kind<'stat', Stat, never> | Kind<'timeseries', TimeSeries, TimeSeriesField>;
type Checked = Unless<Dashboard, 'panels' | 'timezone'> & { panels: AnyPanel[]; timezone: 'browser' | 'utc' };
`;

let faults = 0;
try {
    symlinkSync(join(resolve(packages), 'node_modules'), join(folder, 'node_modules'));
    writeFileSync(join(folder, 'package.json'), '{"type": "module"}');
    const files = dashboards.map((path) => {
        const file = join(folder, basename(path).replace(/\.json$/, '.ts'));
        const body = readFileSync(path, 'utf8').trim();
        writeFileSync(file, `${HEAD}\nexport const dashboard: Checked = ${body};\n`);
        return file;
    });
    const options = {
        strict: true, noEmit: true, skipLibCheck: true, types: [],
        target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler,
    };
    for (const found of ts.getPreEmitDiagnostics(ts.createProgram(files, options))) {
        faults += 1;
        const place = found.file?.getLineAndCharacterOfPosition(found.start);
        const line = place && found.file.text.split('\n')[place.line].trim();
        console.error(`${found.file ? basename(found.file.fileName, '.ts') : 'types'}: ${line ?? ''}: ${ts.flattenDiagnosticMessageText(found.messageText, '\n  ')}`);
    }
} finally {
    rmSync(folder, { recursive: true });
}
console.log(`${dashboards.length} dashboards, ${faults} faults`);
process.exit(faults === 0 ? 0 : 1);
