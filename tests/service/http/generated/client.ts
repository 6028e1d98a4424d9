// Uses the types that openapi-typescript generates from the document; the argument is the service's address.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

declare const process: { argv: string[] };

function check(actual: unknown, expected: unknown): void {
  const [found, wanted] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (found !== wanted) throw new Error(`${found} is not ${wanted}`);
}

const client = createClient<paths>({ baseUrl: process.argv[2] });
const record = "/v1/tables/{table}/records/{key}";
const path = { table: "people", key: "ada" };

const missing = await client.GET(record, { params: { path } });
check([missing.response.status, missing.error?.code], [404, "record_not_found"]);

const put = await client.PUT(record, { params: { path }, body: { name: "Ada" } });
check(put.response.status, 204);
const header = { "If-Match": put.response.headers.get("ETag") ?? "" };
check((await client.GET(record, { params: { path } })).data, { name: "Ada" });

const body = { update: { $inc: { visits: 1 } } };
check((await client.PATCH(record, { params: { path, header }, body })).response.status, 204);
const refused = await client.PATCH(record, { params: { path, header }, body });
check([refused.response.status, refused.error?.code], [412, "precondition_failed"]);
check((await client.GET(record, { params: { path } })).data, { name: "Ada", visits: 1 });

const batch = await client.POST("/v1/tables/{table}/batch", {
  params: { path: { table: "people" } },
  body: {
    operations: [
      { op: "put", key: "grace", value: { n: 1 } },
      { op: "update", key: "alan", update: { $inc: { n: 1 } }, default: { n: 0 }, return: true },
      { op: "get", key: "grace" },
      { op: "delete", key: "ada" },
    ],
  },
});
if (typeof batch.data !== "object") throw new Error("The response is Arrow.");
check(batch.data.results.map((one) => one.status), [204, 201, 200, 204]);
check(batch.data.results.map((one) => one.value ?? null), [null, { n: 1 }, { n: 1 }, null]);
