'use strict';

/*
 * Drives the pure JavaScript client (npm ali-ons 3.12.0) from the command line, as java/Probe.java does for Java: COMMAND key=value ...
 * prints one JSON object a line for each result or message and a last one with "done". Exit status 0 when the command reached what it
 * was asked for, 1 when it did not, 2 on an error. Names of fields are those of Probe.java. The client makes no unique key: its msgId is
 * the id that the broker derives from the offset, the same as offsetMsgId.
 */

const { createHash } = require('crypto');
const { Consumer, Message, Producer } = require('ali-ons');

const HELP = `\
produce  names= topic= [count=1 size= body= tag= keys= delay= shard= mode=sync|async group= ak= sk= compress= timeout= props=k:v,k:v]
         the topic must exist; without tag= the library sends the tag "null"; shard=n: sharding keys shard-0 .. shard-(n-1); async: all at once
consume  names= topic= group= [expect=1 seconds=120 model=CLUSTERING|BROADCASTING tag=* sql= fail=0 max= from=first|last threads=4 settle=0 instance=]
rate     names= topic= [count=100000 size=1024 threads=1]  threads: sends in flight, one thread does them all
transact, pull, request, reply, orderly=true, queue=, mode=oneway|batch: not offered by this library`;

const NOT_OFFERED = ['transact', 'pull', 'litepull', 'request', 'reply', 'query', 'view', 'offsets', 'latency'];

const options = {};
const silent = { debug() {}, info() {}, warn() {}, error() {} };
const sleep = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

class NotOffered extends Error {
  constructor() {
    super('not offered by this library');
  }
}

/** An option that must be there. */
function need(name) {
  if (!(name in options)) {
    throw new Error(`missing ${name}=`);
  }
  return options[name];
}

/** An option that is a number. */
function number(name, otherwise) {
  return name in options ? Number(options[name]) : otherwise;
}

function show(fields) {
  process.stdout.write(JSON.stringify(fields) + '\n');
}

function showResult(result) {
  show({ status: result.sendStatus, msgId: result.msgId, offsetMsgId: result.msgId, broker: result.messageQueue.brokerName,
    queueId: Number(result.messageQueue.queueId), queueOffset: result.queueOffset });
}

function showMessage(message) {
  const body = message.body || Buffer.alloc(0);
  const properties = Object.fromEntries(Object.entries(message.properties).filter(([ key, value ]) => key && value !== null));
  show({ topic: message.topic, queueId: message.queueId, queueOffset: message.queueOffset, physicalOffset: message.commitLogOffset,
    msgId: message.msgId, tags: message.tags || null, keys: message.keys || null, reconsumeTimes: message.reconsumeTimes,
    sysFlag: message.sysFlag, flag: message.flag, bornTimestamp: message.bornTimestamp, storeTimestamp: message.storeTimestamp,
    bornHost: message.bornHost, storeHost: message.storeHost, bodyCRC: message.bodyCRC, storeSize: message.storeSize,
    preparedTransactionOffset: message.preparedTransactionOffset, size: body.length,
    sha1: createHash('sha1').update(body).digest('hex'), body: body.length > 256 ? '' : body.toString(), properties });
}

// --- messages and clients ---

/** The message with this index, made as Probe.java makes it. */
function makeMessage(index) {
  const size = number('size', 0);
  const letters = 'abcdefghijklmnopqrstuvwxyz';
  const body = size ? Buffer.alloc(size, letters.slice(index % 26) + letters.slice(0, index % 26)) : `${options.body || 'message'}-${index}`;
  const tags = (options.tag || '').split(','); // tag=a,b gives messages the tags a, b, a, b ...
  const message = 'tag' in options ? new Message(need('topic'), tags[index % tags.length], body) : new Message(need('topic'), body);
  if ('keys' in options) {
    message.keys = [ `${options.keys}-${index}` ];
  }
  if ('delay' in options) {
    message.delayTimeLevel = number('delay', 0);
  }
  if ('shard' in options) {
    message.shardingKey = `shard-${index % number('shard', 1)}`;
  }
  for (const pair of (options.props || '').split(',').filter(Boolean)) {
    const [ key, value ] = pair.split(':');
    message.properties[key] = value.replaceAll('#', String(index));
  }
  return message;
}

/** What every client is told; the library's hidden producer, started first with the same, would write its errors to stderr. */
async function common() {
  const all = { nameSrv: need('names').split(';'), httpclient: {}, logger: silent };
  if ('ak' in options) {
    Object.assign(all, { accessKey: options.ak, secretKey: need('sk') });
  }
  (await Producer.getDefaultProducer(all)).on('error', () => {});
  return all;
}

async function startProducer() {
  const producer = new Producer({ ...await common(), producerGroup: options.group || 'probe-producer', sendMsgTimeout: number('timeout', 10000),
    compressMsgBodyOverHowmuch: number('compress', 4096) });
  producer.on('error', failure => show({ failed: failure.message }));
  await producer.ready();
  return producer;
}

// --- commands ---

async function produce() {
  const mode = options.mode || 'sync';
  const count = number('count', 1);
  if ('queue' in options || [ 'oneway', 'batch' ].includes(mode)) {
    throw new NotOffered();
  }
  const producer = await startProducer();
  let accepted = 0;
  if (mode === 'async') {
    await Promise.all(Array.from({ length: count }, (_, index) => producer.send(makeMessage(index)).then(result => {
      showResult(result);
      accepted++;
    }, failure => show({ failed: failure.message }))));
  } else {
    for (let index = 0; index < count; index++) {
      showResult(await producer.send(makeMessage(index)));
      accepted++;
    }
  }
  await producer.close();
  show({ done: true, accepted });
  return accepted === count;
}

async function consume() {
  if (options.orderly === 'true') {
    throw new NotOffered();
  }
  const expect = number('expect', 1);
  let fail = number('fail', 0);
  let received = 0;
  const settings = { ...await common(), consumerGroup: need('group'), isBroadcast: options.model === 'BROADCASTING', parallelConsumeLimit: number('threads', 4),
    consumeFromWhere: options.from === 'last' ? 'CONSUME_FROM_LAST_OFFSET' : 'CONSUME_FROM_FIRST_OFFSET',
    maxReconsumeTimes: number('max', 16), instanceName: options.instance || `probe-${process.pid}` };
  const consumer = new Consumer(settings);
  let enough;
  const all = new Promise(resolve => { enough = resolve; });
  const listen = async message => {
    if (fail-- > 0) {
      show({ refused: message.msgId, reconsumeTimes: message.reconsumeTimes });
      return Consumer.ACTION_RETRY;
    }
    showMessage(message);
    if (++received >= expect) {
      enough();
    }
  };
  consumer.on('error', failure => show({ failed: failure.message }));
  const filter = 'sql' in options ? { expressionType: 'SQL92', subString: options.sql } : options.tag || '*';
  for (const topic of need('topic').split(',')) {
    consumer.subscribe(topic, filter, listen);
  }
  await consumer.ready();
  show({ started: true });
  await Promise.race([ all, sleep(1000 * number('seconds', 120)) ]);
  const done = received >= expect;
  await sleep(number('settle', 0));
  await consumer.close();
  show({ done, received });
  return done;
}

async function rate() {
  options.size = options.size || '1024';
  const count = number('count', 100000);
  const threads = number('threads', 1);
  if ('mode' in options && options.mode !== 'sync') {
    throw new NotOffered();
  }
  const producer = await startProducer();
  for (let index = 0; index < Math.min(2000, count); index++) {
    await producer.send(makeMessage(index));
  }
  let next = 0;
  let failures = 0;
  const work = async () => {
    while (next < count) {
      await producer.send(makeMessage(next++)).catch(failure => failures++ || show({ failed: failure.message }));
    }
  };
  const begin = process.hrtime.bigint();
  await Promise.all(Array.from({ length: threads }, work));
  const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
  await producer.close();
  show({ done: true, mode: 'sync', threads, count, seconds, rate: Math.round(count / seconds), failures });
  return failures === 0;
}

async function main(command, ...rest) {
  if (!command) {
    process.stdout.write(HELP + '\n');
    return 2;
  }
  for (const argument of rest) {
    const at = argument.indexOf('=');
    options[argument.slice(0, at)] = argument.slice(at + 1);
  }
  const commands = { produce, consume, rate };
  try {
    if (NOT_OFFERED.includes(command)) {
      throw new NotOffered();
    }
    if (!(command in commands)) {
      throw new Error(`no such command: ${command}`);
    }
    return await commands[command]() ? 0 : 1;
  } catch (failure) {
    show({ error: failure.constructor === Error ? failure.name : failure.constructor.name, text: failure.message });
    return 2;
  }
}

main(...process.argv.slice(2)).then(status => process.exit(status));
