// An OPC UA server that is not ours, for the tests beside it. Its one argument is a JSON object:
//   host, port           where it listens
//   dir                  where it keeps its own certificate
//   variables            how many variables the plant has, nested in areas, units and variables
//   flat                 how many variables one single folder has
//   maxSessions, maxNodesPerRead, maxNodesPerBrowse, maxBrowseContinuationPoints, maxReferencesPerNode
//   trustClients         accept every client certificate (default true)
//   keySize              of the server's certificate (default 2048)
//   advertise            a host name to advertise instead of its own
// It prints one line of JSON when it is ready, obeys one word a line on its standard input, answers each with one line
// of JSON, and ends with its standard input.
"use strict";

const path = require("path");
const readline = require("readline");
const crypto = require("crypto");
const opcua = require("node-opcua");

const options = Object.assign(
  { host: "127.0.0.1", port: 0, variables: 100, flat: 0, maxSessions: 100, trustClients: true },
  JSON.parse(process.argv[2] || "{}"),
);

const users = { operator: "secret" };

async function main() {
  const pki = (name) => new opcua.OPCUACertificateManager({
    rootFolder: path.join(options.dir, name),
    keySize: options.keySize || 2048,
    automaticallyAcceptUnknownCertificate: name === "users" || options.trustClients,
  });
  const certificates = pki("pki");
  const userCertificates = pki("users");
  await certificates.initialize();
  await userCertificates.initialize();

  const operationLimits = {};
  if (options.maxNodesPerRead) operationLimits.maxNodesPerRead = options.maxNodesPerRead;
  if (options.maxNodesPerBrowse) operationLimits.maxNodesPerBrowse = options.maxNodesPerBrowse;

  const server = new opcua.OPCUAServer({
    host: options.host,
    port: options.port,
    hostname: options.advertise,
    alternateHostname: options.host,
    resourcePath: "/plant",
    buildInfo: { manufacturerName: "Interop Works", productName: "Plant Server", softwareVersion: "7.1.2", buildNumber: "42" },
    serverCapabilities: {
      maxSessions: options.maxSessions,
      maxBrowseContinuationPoints: options.maxBrowseContinuationPoints || 50,
      operationLimits,
    },
    maxConnectionsPerEndpoint: 200,
    securityModes: [opcua.MessageSecurityMode.None, opcua.MessageSecurityMode.Sign, opcua.MessageSecurityMode.SignAndEncrypt],
    securityPolicies: [
      opcua.SecurityPolicy.None, opcua.SecurityPolicy.Basic256Sha256,
      opcua.SecurityPolicy.Aes128_Sha256_RsaOaep, opcua.SecurityPolicy.Aes256_Sha256_RsaPss,
    ],
    serverCertificateManager: certificates,
    userCertificateManager: userCertificates,
    userManager: { isValidUser: (name, password) => users[name] === password },
    nodeset_filename: [opcua.nodesets.standard, opcua.nodesets.di],
    isAuditing: false,
  });
  await server.initialize();
  build(server);
  await server.start();

  const endpoint = server.endpoints[0];
  const der = endpoint.getCertificateChain();
  const certificate = (Array.isArray(der) ? der[0] : der);
  console.log(JSON.stringify({
    port: endpoint.port,
    thumbprint: crypto.createHash("sha256").update(certificate).digest("hex"),
    sha1: crypto.createHash("sha1").update(certificate).digest("hex"),
    certificate: certificate.toString("base64"),
  }));

  const tell = (value) => console.log(JSON.stringify(value));
  readline.createInterface({ input: process.stdin }).on("line", (line) => {
    const diagnostics = server.engine.serverDiagnosticsSummary;
    switch (line.trim()) {
      case "counts":
        tell({
          current: diagnostics.currentSessionCount, cumulated: diagnostics.cumulatedSessionCount,
          rejected: diagnostics.rejectedSessionCount, connections: server.currentChannelCount,
          // Microseconds of CPU that this process has used.
          cpu: process.cpuUsage().user + process.cpuUsage().system,
        });
        break;
      case "suspend":
        server.engine.setServerState(opcua.ServerState.Suspended);
        tell({});
        break;
      case "fail":
        server.engine.setServerState(opcua.ServerState.Failed);
        tell({});
        break;
      case "run":
        server.engine.setServerState(opcua.ServerState.Running);
        tell({});
        break;
      default:
        tell({ error: "unknown: " + line });
    }
  }).on("close", () => {
    process.exit(0);
  });
}

function build(server) {
  const space = server.engine.addressSpace;
  // A namespace before the plant's, so that no test can rely on its index.
  space.registerNamespace("urn:interop:before");
  const plantNamespace = space.registerNamespace("urn:interop:plant;v=1");
  const ns = plantNamespace;
  if (options.maxReferencesPerNode) {
    limitReferences(server, options.maxReferencesPerNode);
  }
  const plant = ns.addFolder(space.rootFolder.objects, { browseName: "Plant", nodeId: "s=Plant" });
  const area = (n) => ns.addObject({ browseName: "Area" + n, nodeId: "s=Plant/Area" + n, organizedBy: plant });

  // Ten variables to a unit, every tenth of them below another variable, ten units to an area.
  let left = options.variables;
  for (let a = 0; left > 0; a++) {
    const parent = area(a);
    for (let u = 0; u < 10 && left > 0; u++) {
      const name = `Plant/Area${a}/Unit${u}`;
      const unit = ns.addObject({ browseName: "Unit" + u, nodeId: "s=" + name, componentOf: parent });
      let first;
      for (let v = 0; v < 10 && left > 0; v++, left--) {
        const common = { browseName: "V" + v, nodeId: `s=${name}.V${v}`, componentOf: v === 9 ? first : unit };
        let variable;
        switch (v % 5) {
          case 0:
            variable = ns.addAnalogDataItem(Object.assign(common, {
              dataType: "Double", engineeringUnitsRange: { low: -10, high: 150 }, instrumentRange: { low: -20, high: 200 },
              engineeringUnits: opcua.standardUnits.degree_celsius,
              value: { dataType: "Double", value: 20 + v },
            }));
            break;
          case 1:
            variable = ns.addVariable(Object.assign(common, { dataType: "Boolean", value: { dataType: "Boolean", value: true } }));
            break;
          case 2:
            variable = ns.addVariable(Object.assign(common, { dataType: "UInt16", value: { dataType: "UInt16", value: 7 } }));
            break;
          case 3:
            variable = ns.addVariable(Object.assign(common, {
              dataType: "Float", accessLevel: "CurrentRead", userAccessLevel: "CurrentRead", value: { dataType: "Float", value: 1.5 },
            }));
            break;
          default:
            variable = ns.addVariable(Object.assign(common, {
              dataType: "Int32", valueRank: 1, arrayDimensions: [4],
              value: { dataType: "Int32", arrayType: opcua.VariantArrayType.Array, value: new Int32Array([1, 2, 3, 4]) },
            }));
        }
        first = first || variable;
      }
    }
  }

  const flat = ns.addFolder(space.rootFolder.objects, { browseName: "Flat", nodeId: "s=Flat" });
  for (let i = 0; i < options.flat; i++) {
    ns.addVariable({ browseName: "F" + i, nodeId: "s=Flat." + i, componentOf: flat, dataType: "Double", value: { dataType: "Double", value: i } });
  }

  // What a driver has to get right one by one.
  const odd = ns.addFolder(space.rootFolder.objects, { browseName: "Odd", nodeId: "s=Odd" });
  const add = (browseName, dataType, value, more) =>
    ns.addVariable(Object.assign({ browseName, nodeId: "s=Odd." + browseName, componentOf: odd, dataType, value: value && { dataType, arrayType: opcua.VariantArrayType.Scalar, value } }, more));
  add("SByte", "SByte", -5);
  add("Byte", "Byte", 200);
  add("Int64", "Int64", [0x00000001, 0x00000002]);
  add("UInt32", "UInt32", 4000000000);
  add("Text", "String", "Grüße");
  add("Name with spaces; a semicolon: and %", "Double", 3.25, { nodeId: "s=Plant/Area 1.Unit:0;T 0%" });
  const bad = add("Broken", "Double", 1);
  bad.setValueFromSource({ dataType: "Double", value: 1 }, opcua.StatusCodes.BadSensorFailure);
  const uncertain = add("Uncertain", "Double", 2);
  uncertain.setValueFromSource({ dataType: "Double", value: 2 }, opcua.StatusCodes.UncertainLastUsableValue);
  add("Numeric", "Double", 9, { nodeId: "i=5000" });
  add("Guid", "Double", 8, { nodeId: "g=09087E75-8E5E-499B-954F-F2A9603DB28A" });

  // A cycle: the folder contains the plant, and the plant the folder.
  odd.addReference({ referenceType: "Organizes", nodeId: plant });
  plant.addReference({ referenceType: "Organizes", nodeId: odd });

  // One device by OPC 10000-100.
  const di = space.getNamespaceIndex("http://opcfoundation.org/UA/DI/");
  const deviceSet = space.rootFolder.objects.getFolderElementByName("DeviceSet", di);
  if (deviceSet) {
    const device = ns.addObject({ browseName: "Press", nodeId: "s=Press", componentOf: deviceSet });
    ns.addVariable({
      browseName: { name: "SerialNumber", namespaceIndex: di }, nodeId: "s=Press.SerialNumber", propertyOf: device,
      dataType: "String", value: { dataType: "String", value: "SN-4711" },
    });
  }
}

// node-opcua takes the client's own limit on references; this is the server's.
function limitReferences(server, limit) {
  const original = server._on_BrowseRequest;
  server._on_BrowseRequest = function (message, channel) {
    const request = message.request;
    if (!request.requestedMaxReferencesPerNode || request.requestedMaxReferencesPerNode > limit) {
      request.requestedMaxReferencesPerNode = limit;
    }
    return original.call(this, message, channel);
  };
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
