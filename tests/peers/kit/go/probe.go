// Drives Apache's Go client (github.com/apache/rocketmq-client-go/v2) from the command line, as java/Probe.java does for Java:
// COMMAND key=value ... prints one JSON object a line for each result or message and a last one with "done". Exit status 0 when the
// command reached what it was asked for, 1 when it did not, 2 on an error. Names of fields are those of Probe.java.
package main

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const help = `produce  names= topic= [count=1 size= body= tag= keys= delay= queue= shard= mode=sync|async|oneway|batch group= ak= sk= compress= timeout= props=k:v,k:v]
transact names= topic= [count=1 outcome=commit|rollback|unknown check=commit|rollback seconds=120]
consume  names= topic= group= [expect=1 seconds=120 model=CLUSTERING|BROADCASTING orderly=false tag=* sql= fail=0 max= from=first|last threads=4 settle=0 instance=]
         the topic must exist; what fail= refuses comes back after 10 seconds, in a new group after 30 to 50: the library looks for
         routes every 30 seconds and shares queues out every 20
pull     names= topic= group= [tag=* max=1000]        every queue from offset 0; an empty queue takes 2 seconds, the library always asks to wait
request  names= topic= [count=1 seconds=60]
reply    names= topic= group= [expect=1 seconds=120]
admin    names= topic= broker=HOST:PORT [queues=8]    creates the topic and waits until the name server has it
rate     names= topic= [count=100000 size=1024 threads=1 mode=sync|async|oneway window=32]
query, view, offsets, latency: not offered by this library`

var (
	options  = map[string]string{}
	printing sync.Mutex
	statuses = map[primitive.SendStatus]string{primitive.SendOK: "SEND_OK", primitive.SendFlushDiskTimeout: "FLUSH_DISK_TIMEOUT",
		primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT", primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE"}
	states = map[string]primitive.LocalTransactionState{"commit": primitive.CommitMessageState, "rollback": primitive.RollbackMessageState,
		"unknown": primitive.UnkonwnState}
	errNotOffered = errors.New("not offered by this library")
)

type fields = map[string]any

// --- options and output ---

func text(name, otherwise string) string {
	if value, ok := options[name]; ok {
		return value
	}
	return otherwise
}

func number(name string, otherwise int) int {
	value, ok := options[name]
	if !ok {
		return otherwise
	}
	parsed, err := strconv.Atoi(value)
	check(err)
	return parsed
}

func need(name string) string {
	value, ok := options[name]
	if !ok {
		check(fmt.Errorf("missing %s=", name))
	}
	return value
}

func seconds(name string, otherwise int) time.Duration {
	return time.Duration(number(name, otherwise)) * time.Second
}

// check ends the command with an error line and status 2.
func check(err error) {
	if err == nil {
		return
	}
	name := fmt.Sprintf("%T", err)
	if errors.Is(err, errNotOffered) {
		name = "NotOffered"
	}
	show(fields{"error": name, "text": err.Error()})
	os.Exit(2)
}

func show(line fields) {
	out, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(out))
}

func showResult(result *primitive.SendResult) {
	show(fields{"status": statuses[result.Status], "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID, "broker": result.MessageQueue.BrokerName,
		"queueId": result.MessageQueue.QueueId, "queueOffset": result.QueueOffset, "transactionId": result.TransactionID, "region": result.RegionID})
}

func showMessage(message *primitive.MessageExt) {
	body := ""
	if len(message.Body) <= 256 {
		body = string(message.Body)
	}
	show(fields{"topic": message.Topic, "queueId": message.Queue.QueueId, "queueOffset": message.QueueOffset, "physicalOffset": message.CommitLogOffset,
		"msgId": message.MsgId, "tags": orNull(message.GetTags()), "keys": orNull(message.GetKeys()), "reconsumeTimes": message.ReconsumeTimes,
		"sysFlag": message.SysFlag, "flag": message.Flag, "bornTimestamp": message.BornTimestamp, "storeTimestamp": message.StoreTimestamp,
		"bornHost": message.BornHost, "storeHost": message.StoreHost, "bodyCRC": message.BodyCRC, "storeSize": message.StoreSize,
		"preparedTransactionOffset": message.PreparedTransactionOffset, "size": len(message.Body),
		"sha1": fmt.Sprintf("%x", sha1.Sum(message.Body)), "body": body, "properties": message.GetProperties()})
}

func orNull(value string) any {
	if value == "" {
		return nil
	}
	return value
}

// --- messages and clients ---

// placed sends a message to the queue that its Queue field numbers, to the first one without.
type placed struct{ modulo bool }

func (p placed) Select(message *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	if message.Queue == nil {
		return queues[0]
	}
	wanted := message.Queue.QueueId
	if p.modulo {
		return queues[wanted%len(queues)]
	}
	for _, queue := range queues {
		if queue.QueueId == wanted {
			return queue
		}
	}
	return nil
}

// newMessage is the message with this index, made as Probe.java makes it.
func newMessage(index int) *primitive.Message {
	body := []byte(text("body", "message") + "-" + strconv.Itoa(index))
	if size := number("size", 0); size > 0 {
		body = make([]byte, size)
		for i := range body {
			body[i] = byte('a' + (i+index)%26)
		}
	}
	tags := strings.Split(text("tag", ""), ",") // tag=a,b gives messages the tags a, b, a, b ...
	message := primitive.NewMessage(need("topic"), body).WithTag(tags[index%len(tags)])
	if keys, ok := options["keys"]; ok {
		message.WithKeys([]string{keys + "-" + strconv.Itoa(index)})
	}
	if delay := number("delay", 0); delay > 0 {
		message.WithDelayTimeLevel(delay)
	}
	for _, pair := range strings.Split(text("props", ""), ",") {
		key, value, _ := strings.Cut(pair, ":")
		message.WithProperty(key, strings.ReplaceAll(value, "#", strconv.Itoa(index)))
	}
	if _, ok := options["queue"]; ok {
		message.Queue = &primitive.MessageQueue{QueueId: number("queue", 0)}
	} else if shards := number("shard", 0); shards > 0 {
		message.Queue = &primitive.MessageQueue{QueueId: index % shards}
	}
	return message
}

// smaller stands in for the built-in min, which came with Go 1.21.
func smaller(one, other int) int {
	if one < other {
		return one
	}
	return other
}

func resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver(strings.Split(need("names"), ";"))
}

func credentials() primitive.Credentials {
	if _, ok := options["ak"]; !ok {
		return primitive.Credentials{}
	}
	return primitive.Credentials{AccessKey: options["ak"], SecretKey: need("sk")}
}

func instance() string {
	return text("instance", fmt.Sprintf("probe-%d", time.Now().UnixNano()))
}

func producerOptions(group string) []producer.Option {
	chosen := []producer.Option{producer.WithNsResolver(resolver()), producer.WithCredentials(credentials()), producer.WithInstanceName(instance()),
		producer.WithGroupName(text("group", group)), producer.WithSendMsgTimeout(time.Duration(number("timeout", 10000)) * time.Millisecond),
		producer.WithCompressMsgBodyOverHowmuch(number("compress", 4096))}
	if _, ok := options["queue"]; ok {
		chosen = append(chosen, producer.WithQueueSelector(placed{}))
	} else if _, ok := options["shard"]; ok {
		chosen = append(chosen, producer.WithQueueSelector(placed{modulo: true}))
	}
	return chosen
}

func startProducer(more ...producer.Option) rocketmq.Producer {
	client, err := rocketmq.NewProducer(append(producerOptions("probe-producer"), more...)...)
	check(err)
	check(client.Start())
	return client
}

func selector() consumer.MessageSelector {
	if sql, ok := options["sql"]; ok {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: text("tag", "*")}
}

func consumerOptions() []consumer.Option {
	where := consumer.ConsumeFromFirstOffset
	if text("from", "first") == "last" {
		where = consumer.ConsumeFromLastOffset
	}
	chosen := []consumer.Option{consumer.WithNsResolver(resolver()), consumer.WithCredentials(credentials()), consumer.WithInstance(instance()),
		consumer.WithGroupName(need("group")), consumer.WithConsumeFromWhere(where), consumer.WithConsumeGoroutineNums(number("threads", 4)),
		consumer.WithConsumerOrder(text("orderly", "false") == "true")}
	if text("model", "CLUSTERING") == "BROADCASTING" {
		chosen = append(chosen, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if _, ok := options["max"]; ok {
		chosen = append(chosen, consumer.WithMaxReconsumeTimes(int32(number("max", 16))))
	}
	return chosen
}

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func startPushConsumer(listen listener) rocketmq.PushConsumer {
	client, err := rocketmq.NewPushConsumer(consumerOptions()...)
	check(err)
	for _, topic := range strings.Split(need("topic"), ",") {
		check(client.Subscribe(topic, selector(), listen))
	}
	check(client.Start())
	show(fields{"started": true})
	return client
}

// waitFor returns true when reached says so before the time is over.
func waitFor(limit time.Duration, reached func() bool) bool {
	for until := time.Now().Add(limit); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			return false
		}
	}
	return true
}

// --- commands ---

func produce() bool {
	client := startProducer()
	background := context.Background()
	count := number("count", 1)
	mode := text("mode", "sync")
	var accepted atomic.Int64
	switch mode {
	case "batch":
		batch := make([]*primitive.Message, count)
		for i := range batch {
			batch[i] = newMessage(i)
		}
		result, err := client.SendSync(background, batch...)
		check(err)
		showResult(result)
		accepted.Store(int64(count))
	case "async":
		var left sync.WaitGroup
		for i := 0; i < count; i++ {
			left.Add(1)
			check(client.SendAsync(background, func(_ context.Context, result *primitive.SendResult, err error) {
				defer left.Done()
				if err != nil {
					show(fields{"failed": err.Error()})
					return
				}
				showResult(result)
				accepted.Add(1)
			}, newMessage(i)))
		}
		left.Wait()
	case "oneway":
		for i := 0; i < count; i++ {
			check(client.SendOneWay(background, newMessage(i)))
			accepted.Add(1)
		}
		time.Sleep(500 * time.Millisecond)
	case "sync":
		for i := 0; i < count; i++ {
			result, err := client.SendSync(background, newMessage(i))
			check(err)
			showResult(result)
			accepted.Add(1)
		}
	default:
		check(fmt.Errorf("no such mode: %s", mode))
	}
	check(client.Shutdown())
	show(fields{"done": true, "accepted": accepted.Load()})
	return accepted.Load() == int64(count)
}

// judge is the transaction listener: one state for the local transaction, another for the broker's question about it.
type judge struct {
	outcome, later primitive.LocalTransactionState
	checks         atomic.Int64
}

func (j *judge) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return j.outcome
}

func (j *judge) CheckLocalTransaction(half *primitive.MessageExt) primitive.LocalTransactionState {
	show(fields{"check": half.MsgId, "transactionId": half.TransactionId, "body": string(half.Body)})
	j.checks.Add(1)
	return j.later
}

func transact() bool {
	outcome := text("outcome", "commit")
	count := number("count", 1)
	verdict := &judge{outcome: states[outcome], later: states[text("check", "commit")]}
	client, err := rocketmq.NewTransactionProducer(verdict, producerOptions("probe-transactions")...)
	check(err)
	check(client.Start())
	for i := 0; i < count; i++ {
		result, err := client.SendMessageInTransaction(context.Background(), newMessage(i))
		check(err)
		showResult(result.SendResult)
	}
	asked := outcome != "unknown" || waitFor(seconds("seconds", 120), func() bool { return verdict.checks.Load() >= int64(count) })
	time.Sleep(500 * time.Millisecond)
	check(client.Shutdown())
	show(fields{"done": asked, "checks": verdict.checks.Load()})
	return asked
}

func consume() bool {
	expect := int64(number("expect", 1))
	var fail, received atomic.Int64
	fail.Store(int64(number("fail", 0)))
	refusal := consumer.ConsumeRetryLater
	if text("orderly", "false") == "true" {
		refusal = consumer.SuspendCurrentQueueAMoment
	}
	client := startPushConsumer(func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if fail.Add(-1) >= 0 {
			show(fields{"refused": messages[0].MsgId, "reconsumeTimes": messages[0].ReconsumeTimes})
			return refusal, nil
		}
		for _, message := range messages {
			showMessage(message)
			received.Add(1)
		}
		return consumer.ConsumeSuccess, nil
	})
	done := waitFor(seconds("seconds", 120), func() bool { return received.Load() >= expect })
	time.Sleep(time.Duration(number("settle", 0)) * time.Millisecond)
	check(client.Shutdown())
	show(fields{"done": done, "received": received.Load()})
	return done
}

func pull() bool {
	client, err := rocketmq.NewPullConsumer(consumerOptions()...)
	check(err)
	topic := need("topic")
	check(client.Subscribe(topic, selector()))
	check(client.Start())
	queues, err := client.GetTopicRouteInfo(topic)
	check(err)
	left, received := number("max", 1000), 0
	offsets := make([]int64, len(queues))
	for i, queue := range queues {
		offset := &offsets[i]
		for left > 0 {
			result := pullWithin(client, queue, *offset, smaller(32, left))
			if result == nil || result.Status == primitive.PullNoNewMsg || result.Status == primitive.PullOffsetIllegal {
				break
			}
			for _, message := range result.GetMessageExts() {
				showMessage(message)
				received++
				left--
			}
			*offset = result.NextBeginOffset
			if *offset >= result.MaxOffset {
				break
			}
		}
	}
	time.Sleep(500 * time.Millisecond) // the library's first rebalance forgets offsets set before it
	for i, queue := range queues {
		check(client.UpdateOffset(queue, offsets[i]))
	}
	check(client.PersistOffset(context.Background(), topic))
	check(client.Shutdown())
	show(fields{"done": true, "received": received})
	return true
}

// pullWithin is nil when the broker holds the request back, as it does at the end of a queue.
func pullWithin(client rocketmq.PullConsumer, queue *primitive.MessageQueue, offset int64, maximum int) *primitive.PullResult {
	answer := make(chan *primitive.PullResult, 1)
	go func() {
		result, err := client.PullFrom(context.Background(), queue, offset, maximum)
		check(err)
		answer <- result
	}()
	select {
	case result := <-answer:
		return result
	case <-time.After(2 * time.Second):
		return nil
	}
}

// startKnownProducer starts one that brokers can push replies to, as they can to clients that have sent a heartbeat. This library sends its
// first one a second after the start, to brokers whose routes it knows by then, and the next after 30. A message for no queue makes it look
// the route up, no more; a client that took too long for this is of no use.
func startKnownProducer() rocketmq.Producer {
	for {
		begin := time.Now()
		client := startProducer(producer.WithQueueSelector(placed{}))
		nowhere := newMessage(0)
		nowhere.Queue = &primitive.MessageQueue{QueueId: -1}
		_, _ = client.SendSync(context.Background(), nowhere)
		if time.Since(begin) < 900*time.Millisecond {
			time.Sleep(2500 * time.Millisecond)
			return client
		}
		check(client.Shutdown())
	}
}

func request() bool {
	client := startKnownProducer()
	for i := 0; i < number("count", 1); i++ {
		reply, err := client.Request(context.Background(), seconds("seconds", 60), newMessage(i))
		check(err)
		show(fields{"reply": string(reply.Body), "correlation": reply.GetProperty(primitive.PropertyCorrelationID)})
	}
	check(client.Shutdown())
	show(fields{"done": true})
	return true
}

func reply() bool {
	expect := int64(number("expect", 1))
	answers := startProducer()
	var answered atomic.Int64
	client := startPushConsumer(func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			answer, err := consumer.CreateReplyMessage(message, nil)
			if err == nil {
				answer.Body = []byte("reply to " + string(message.Body)) // CreateReplyMessage takes a body for properties and sets none
				_, err = answers.SendSync(context.Background(), answer)
			}
			if err != nil {
				show(fields{"failed": err.Error()})
				return consumer.ConsumeRetryLater, nil
			}
			show(fields{"answered": message.MsgId})
			answered.Add(1)
		}
		return consumer.ConsumeSuccess, nil
	})
	done := waitFor(seconds("seconds", 120), func() bool { return answered.Load() >= expect })
	check(client.Shutdown())
	check(answers.Shutdown())
	show(fields{"done": done})
	return done
}

func administrate() bool {
	client, err := admin.NewAdmin(admin.WithResolver(resolver()), admin.WithCredentials(credentials()))
	check(err)
	queues := number("queues", 8)
	check(client.CreateTopic(context.Background(), admin.WithTopicCreate(need("topic")), admin.WithBrokerAddrCreate(need("broker")),
		admin.WithReadQueueNums(queues), admin.WithWriteQueueNums(queues)))
	done := waitFor(5*time.Second, func() bool { // the library does not look at the code of the broker's answer
		found, err := client.FetchPublishMessageQueues(context.Background(), need("topic"))
		return err == nil && len(found) > 0
	})
	check(client.Close())
	show(fields{"done": done})
	return done
}

func rate() bool {
	if _, ok := options["size"]; !ok {
		options["size"] = "1024"
	}
	count, threads, mode := number("count", 100000), number("threads", 1), text("mode", "sync")
	client := startProducer()
	background := context.Background()
	for i := 0; i < smaller(2000, count); i++ {
		_, err := client.SendSync(background, newMessage(i))
		check(err)
	}
	window := make(chan struct{}, number("window", 32))
	var next, failures atomic.Int64
	var left sync.WaitGroup
	end := func(err error) {
		if err != nil && failures.Add(1) == 1 {
			show(fields{"failed": err.Error()})
		}
		left.Done()
	}
	send := map[string]func(*primitive.Message){
		"sync": func(message *primitive.Message) {
			_, err := client.SendSync(background, message)
			end(err)
		},
		"oneway": func(message *primitive.Message) { end(client.SendOneWay(background, message)) },
		"async": func(message *primitive.Message) {
			window <- struct{}{}
			err := client.SendAsync(background, func(_ context.Context, _ *primitive.SendResult, err error) {
				<-window
				end(err)
			}, message)
			if err != nil {
				<-window
				end(err)
			}
		},
	}[mode]
	if send == nil {
		check(fmt.Errorf("no such mode: %s", mode))
	}
	left.Add(count)
	begin := time.Now()
	for t := 0; t < threads; t++ {
		go func() {
			for i := next.Add(1); i <= int64(count); i = next.Add(1) {
				send(newMessage(int(i - 1)))
			}
		}()
	}
	left.Wait()
	took := time.Since(begin).Seconds()
	check(client.Shutdown())
	show(fields{"done": true, "mode": mode, "threads": threads, "count": count, "seconds": took, "rate": int(float64(count)/took + 0.5),
		"failures": failures.Load()})
	return failures.Load() == 0
}

func main() {
	if len(os.Args) < 2 {
		fmt.Println(help)
		os.Exit(2)
	}
	for _, argument := range os.Args[2:] {
		key, value, _ := strings.Cut(argument, "=")
		options[key] = value
	}
	rlog.SetLogLevel("fatal")
	commands := map[string]func() bool{"produce": produce, "transact": transact, "consume": consume, "pull": pull, "request": request,
		"reply": reply, "admin": administrate, "rate": rate}
	switch command := commands[os.Args[1]]; {
	case command != nil && command():
		os.Exit(0)
	case command != nil:
		os.Exit(1)
	case strings.Contains(" query view offsets latency litepull ", " "+os.Args[1]+" "):
		check(errNotOffered)
	default:
		check(fmt.Errorf("no such command: %s", os.Args[1]))
	}
}
