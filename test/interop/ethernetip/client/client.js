// Connects to an EtherNet/IP controller and does what its argument says, a JSON object:
//   host, slot; connected: by a Forward Open, else by Unconnected Send;
//   read: names of tags; group: names of tags to read at once, by Multiple Service Packets; write: names and values; structures: names of structures to read whole.
// It prints one JSON object: identity, tags, values, structures, and error if anything failed.
'use strict';

const { Controller, Tag, TagGroup, Structure } = require('st-ethernet-ip');

const want = JSON.parse(process.argv[2]);

async function main() {
  const result = { tags: [], values: {}, structures: {} };
  const plc = new Controller(want.connected);
  plc.timeout_sp = 5000;
  await plc.connect(want.host, want.slot);
  const p = plc.properties;
  result.identity = { name: p.name, serial: p.serial_number, version: p.version, faulted: p.faulted };
  for (const tag of plc.state.tagList.tags) {
    result.tags.push({ name: tag.name, program: tag.program || '', type: tag.type.typeName || '', dimensions: tag.type.arrayDims, system: tag.type.reserved });
  }
  for (const [name, value] of Object.entries(want.write || {})) {
    const tag = new Tag(name);
    await plc.readTag(tag); // learns the type
    tag.value = value;
    await plc.writeTag(tag);
  }
  for (const name of want.read || []) {
    const tag = new Tag(name);
    await plc.readTag(tag);
    result.values[name] = tag.value;
  }
  if (want.group) {
    const group = new TagGroup();
    for (const name of want.group) {
      group.add(new Tag(name));
    }
    await plc.readTagGroup(group);
    group.forEach((tag) => {
      result.values[tag.name] = tag.value;
    });
  }
  for (const name of want.structures || []) {
    const tag = new Structure(name, plc.state.tagList);
    await plc.readTag(tag);
    result.structures[name] = tag.value;
  }
  if (want.connected) {
    await plc.forwardClose();
  }
  return result;
}

main()
  .catch((error) => ({ error: error.message || JSON.stringify(error) }))
  .then((result) => process.stdout.write(JSON.stringify(result) + '\n', () => process.exit(0)));
