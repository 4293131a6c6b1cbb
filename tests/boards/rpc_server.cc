// An RPC server for an emulated board: one session at a time, each in a child process, so that a kernel that crashes
// costs its session and not the server.
//   rpc_server HOST PORT TRACKER_HOST TRACKER_PORT KEY FOLDER       TRACKER_PORT 0: no tracker
// Kernels take KERNEL_MICROSECONDS longer, where that variable is set, by waiting: a board of a given speed.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/registry.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

using namespace tvm::runtime;

namespace {

constexpr int kRpcMagic = 0xff271;
constexpr int kKeyMismatch = kRpcMagic + 2;
constexpr int kTrackerMagic = 0x2f271;
constexpr int kPut = 3, kUpdateInfo = 5, kPendingKeys = 7;  // tvm.rpc.base.TrackerCode
constexpr int kPollMilliseconds = 2000;

bool SendAll(int fd, const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size != 0) {
    ssize_t sent = send(fd, next, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    next += sent;
    size -= sent;
  }
  return true;
}

bool ReceiveAll(int fd, void* data, size_t size) {
  char* next = static_cast<char*>(data);
  while (size != 0) {
    ssize_t received = recv(fd, next, size, 0);
    if (received <= 0) return false;
    next += received;
    size -= received;
  }
  return true;
}

bool SendText(int fd, const std::string& text) {
  int size = text.size();
  return SendAll(fd, &size, sizeof size) && SendAll(fd, text.data(), size);
}

bool ReceiveText(int fd, std::string* text, int most = 1 << 20) {
  int size;
  if (!ReceiveAll(fd, &size, sizeof size) || size < 0 || size > most) return false;
  text->resize(size);
  return ReceiveAll(fd, &(*text)[0], size);
}

sockaddr_in Address(const char* host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
    fprintf(stderr, "need a dotted address: %s\n", host);
    exit(2);
  }
  return address;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// A model whose kernels wait when they are done.
class Waiting : public ModuleNode {
 public:
  Waiting(Module model, useconds_t wait) : model_(std::move(model)), wait_(wait) {}

  const char* type_key() const final { return "waiting"; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    PackedFunc function = model_.GetFunction(name, true);
    bool kernel = std::string(name).rfind("tvmgen_", 0) == 0;
    if (function == nullptr || !kernel) return function;
    return PackedFunc([self, function, wait = wait_](TVMArgs args, TVMRetValue* result) {
      function.CallPacked(args, result);
      usleep(wait);
    });
  }

 private:
  Module model_;
  useconds_t wait_;
};

Module OfGivenSpeed(Module model) {
  const char* wait = getenv("KERNEL_MICROSECONDS");
  return wait == nullptr ? model : Module(make_object<Waiting>(std::move(model), atoi(wait)));
}

// Serves one session in `folder`, where uploaded modules go.
void Serve(int fd, const std::string& folder) {
  Registry::Register("tvm.rpc.server.workpath", true).set_body_typed([folder](std::string name) {
    return folder + "/" + name;
  });
  Registry::Register("tvm.rpc.server.load_module", true).set_body([folder](TVMArgs args, TVMRetValue* result) {
    std::string path = folder + "/" + args[0].operator std::string();
    ICHECK(EndsWith(path, ".so")) << "this board has no linker; link on the host: " << path;
    *result = OfGivenSpeed(Module::LoadFromFile(path, ""));
  });
  (*Registry::Get("rpc.ServerLoop"))(fd);
}

// The connection to a tracker: who this is, and under which key it is free.
class Tracker {
 public:
  Tracker(sockaddr_in address, int port, std::string key)
      : address_(address), port_(std::to_string(port)), key_(std::move(key)) {}

  bool enabled() const { return address_.sin_port != 0; }
  const std::string& match_key() const { return match_key_; }

  // Tells the tracker that this board is free; tries until it is told.
  void Offer() {
    if (!enabled()) {
      match_key_ = key_;
      return;
    }
    while (!Connected() || !Put()) {
      Drop();
      sleep(1);
    }
  }

  // Offers again where the tracker has forgotten this board, or given it to a client that never came.
  void KeepOffered() {
    std::string reply;
    if (!enabled()) return;
    if (!Connected() || !SendText(fd_, "[" + std::to_string(kPendingKeys) + "]") || !ReceiveText(fd_, &reply)) {
      Drop();
      Offer();
      return;
    }
    missed_ = reply.find("\"" + match_key_ + "\"") == std::string::npos ? missed_ + 1 : 0;
    if (missed_ > 3) Offer();
  }

  void Drop() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  bool Connected() {
    if (fd_ >= 0) return true;
    int magic = kTrackerMagic;
    std::string reply;
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    return connect(fd_, reinterpret_cast<sockaddr*>(&address_), sizeof address_) == 0 &&
           SendAll(fd_, &magic, sizeof magic) && ReceiveAll(fd_, &magic, sizeof magic) && magic == kTrackerMagic &&
           SendText(fd_, "[" + std::to_string(kUpdateInfo) + ", {\"key\": \"server:" + key_ + "\", \"addr\": [null, " +
                             port_ + "]}]") &&
           ReceiveText(fd_, &reply);
  }

  bool Put() {
    std::string reply;
    missed_ = 0;
    match_key_ = key_ + ":" + std::to_string(drand48());
    return SendText(fd_, "[" + std::to_string(kPut) + ", \"" + key_ + "\", [" + port_ + ", \"" + match_key_ +
                             "\"], null]") &&
           ReceiveText(fd_, &reply);
  }

  sockaddr_in address_;
  std::string port_, key_, match_key_;
  int fd_ = -1, missed_ = 0;
};

// Waits for a client with the right key; -1 where a connection came to nothing.
int Accept(int listener, const std::string& match_key, const std::string& key, std::string* options) {
  int fd = accept(listener, nullptr, nullptr), magic;
  if (fd < 0) return -1;
  std::string greeting;
  if (!ReceiveAll(fd, &magic, sizeof magic) || magic != kRpcMagic || !ReceiveText(fd, &greeting, 4096)) {
    close(fd);
    return -1;
  }
  size_t space = greeting.find(' ');
  *options = space == std::string::npos ? "" : greeting.substr(space + 1);
  bool known = greeting.substr(0, space) == "client:" + match_key;
  int code = known ? kRpcMagic : kKeyMismatch, one = 1;
  if (!SendAll(fd, &code, sizeof code) || !known || !SendText(fd, "server:" + key)) {
    close(fd);
    return -1;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

// Runs one session in a child process and waits for its end, or for its time to be up.
void RunSession(int fd, int listener, const std::string& folder, const std::string& options) {
  double limit = 0, passed = 0;
  size_t found = options.find("-timeout=");
  if (found != std::string::npos) limit = atof(options.c_str() + found + strlen("-timeout="));
  mkdir(folder.c_str(), 0755);
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(listener);
    int code = 0;
    try {
      Serve(fd, folder);
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", error.what());
      code = 1;
    }
    _exit(code);
  }
  int status;
  while (waitpid(child, &status, WNOHANG) == 0) {
    usleep(20000);
    passed += 0.02;
    if (limit > 0 && passed > limit) kill(child, SIGKILL);
  }
  close(fd);
  (void)!system(("rm -rf '" + folder + "'").c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    fprintf(stderr, "usage: %s HOST PORT TRACKER_HOST TRACKER_PORT KEY FOLDER\n", argv[0]);
    return 2;
  }
  int port = atoi(argv[2]), one = 1;
  std::string key = argv[5], base = argv[6];
  srand48(time(nullptr) ^ getpid());
  signal(SIGPIPE, SIG_IGN);
  mkdir(base.c_str(), 0755);
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address = Address(argv[1], port);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) || listen(listener, 8)) {
    perror("bind");
    return 1;
  }
  fprintf(stderr, "ready on %s:%d, key %s\n", argv[1], port, key.c_str());
  Tracker tracker(Address(argv[3], atoi(argv[4])), port, key);
  for (int session = 0;; ++session) {
    tracker.Offer();
    int fd = -1;
    std::string options;
    while (fd < 0) {
      pollfd waiting{listener, POLLIN, 0};
      if (poll(&waiting, 1, kPollMilliseconds) > 0) {
        fd = Accept(listener, tracker.match_key(), key, &options);
      } else {
        tracker.KeepOffered();
      }
    }
    RunSession(fd, listener, base + "/" + std::to_string(getpid()) + "-" + std::to_string(session), options);
  }
}
